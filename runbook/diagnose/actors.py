"""Who still does something, or could without being seen. While there is such a one, nobody is hung.

A live server always has an actor: a thread that computes, a sleep that ends, bytes that come, a disk, somebody outside who works. So
before a stand-still is called a hang, every place where an actor could hide must have been looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runbook.diagnose.calls import at_calls
from runbook.diagnose.child_progress import is_compiler
from runbook.diagnose.execution import SPINS, WORKS, Run, execution, peer_execution
from runbook.diagnose.family import accused, everyone, is_helper, name, ranks_elsewhere
from runbook.diagnose.loops import LOOKS, loop_of
from runbook.diagnose.motion import readings, rows
from runbook.diagnose.places import NOWHERE, Place, places, wchan_kind
from runbook.diagnose.progress import unasked
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.diagnose.wait_lexicon import LOCK_FILE
from runbook.model.sample import Blind, PipeSample, ProcessSample, Sample, Seen, SocketSample

SPIN_LOOKS = 4
FROZEN = re.compile(r"refrigerator|freezer")
DEEP = 3
"""Frames from the innermost on in which a wait for a lock file shows."""
IDLE_FAULTS_PER_S = 20.0
"""Page faults of a thread that only waits. One that computes takes and gives back memory, as a rule."""


class Unseen(NamedTuple):
    """Where somebody could work unseen.

    `kind`: stranger (a partner elsewhere), nowhere (an unknown wait), unread (a source of progress), idle (it may be a server that nobody
    asks), device (a GPU that may compute), elsewhere (ranks that are not seen here),
    sleeper or poller (a thread or process that comes back now and then).
    """

    kind: str
    text: str


def actors(view: View) -> tuple[str, ...]:
    """Those that are seen to work, in words."""
    return tuple(dict.fromkeys([*_workers(view), *_throttled(view), *_sleepers(view), *_newborn(view), *_peers_at_work(view)]))


def waits_spinning(view: View, run: Run) -> bool:
    """Burns a core at one and the same place which by its name or its source waits, and takes no memory: it looks at a flag.

    Collectives wait so by design; any other function may bear such a name and compute, so more looks have to agree, to the line, and no
    other thread of it may be the one that works.
    """
    place = view.once(places).get(run.key, NOWHERE)
    quiet = run.faults is None or run.faults < IDLE_FAULTS_PER_S
    enough = place.looks >= 2 if place.kind == "collective" else place.tight >= SPIN_LOOKS and run.demand_beside < WORKS
    waits = place.blocked or (place.same and not place.kind and loop_of(view, run.process.pid, run.process.pid) == LOOKS)
    return run.demand >= SPINS and waits and place.source != "wchan" and quiet and enough


def polls_a_lock_file(run: Run, place: Place) -> bool:
    """Whether all that it does is to wake and look for a lock file, by its innermost frames at two looks: what it demands on a busy host
    is its turn."""
    frames = place.frames[:DEEP] if place.same and place.source != "wchan" else ()
    return run.demand < SPINS and run.demand_beside < WORKS and any(LOCK_FILE.search(frame) for frame in frames)


def _workers(view: View) -> Iterator[str]:
    table = view.once(places)
    busy = [run for run in view.once(execution).runs if run.demand >= WORKS]
    spinning = [run for run in busy if waits_spinning(view, run)]
    together = len(spinning) > 1 and not all(table.get(run.key, NOWHERE).kind == "collective" for run in spinning)
    for run in busy:  # of two that spin one may feed the other
        if (run not in spinning or together) and not polls_a_lock_file(run, table.get(run.key, NOWHERE)):
            yield f"{name(view, run.process)} uses {run.demand:.1f} cores"


def _throttled(view: View) -> Iterator[str]:
    """Stopped and let go on in turn, as cpulimit does: it works in between."""
    for run in view.once(execution).runs:
        if "T" in run.states and not run.frozen:
            yield f"{name(view, run.process)} is stopped and let go on in turn"
        elif any(FROZEN.search(channel) for channel in (run.wchan, *run.others)):
            yield f"{name(view, run.process)} is frozen by its control group, and may be let go on"


def _sleepers(view: View) -> Iterator[str]:
    """A main thread that sleeps for a given time comes back by itself."""
    table = view.once(places)
    for run in view.once(accused):
        if run.frozen and table.get(run.key, NOWHERE).kind == "timer":
            yield f"{name(view, run.process)} sleeps for a given time"


def _newborn(view: View) -> Iterator[str]:
    for process in view.once(execution).newborn:
        if process.state not in "ZX" and (is_compiler(process.title) or (process.age_s or 0.0) >= 1.0):
            yield f"pid {process.pid} `{process.title[:60]}` has just been started"


def _peers_at_work(view: View) -> Iterator[str]:
    """Processes outside that the tree waits for and that do something."""
    for run in view.once(peer_execution).runs:
        if not run.frozen and run.process.pid in view.once(awaited):
            yield f"pid {run.process.pid} `{run.process.title[:60]}`, which it waits for, works"


def awaited(view: View) -> frozenset[int]:
    """pids outside the tree at the other end of a connection or pipe that is being read, or holding a lock that is waited for."""
    ours = {process.pid for process in tree(view)}
    found = {one.peer_pid for one in sockets(view) if one.peer_pid is not None and _is_read(view, one.pid)}
    for process in tree(view):
        for pipe in pipes(process):
            if _at_pipe(view, process, pipe):
                found |= set(pipe.peers)
    locks = view.newest("locks")
    found |= {lock.holder for lock in (locks.value if isinstance(locks, Seen) else ()) if lock.waiters and lock.holder is not None}
    return frozenset(pid for pid in found if pid is not None and pid not in ours)


def unseen(view: View) -> tuple[Unseen, ...]:
    """What would have to be looked at before a hang is certain."""
    found = dict.fromkeys([*_elsewhere(view), *_strangers(view), *_nowhere(view), *_unread(view), *_idle(view), *_pollers(view)])
    return tuple(found)


def _elsewhere(view: View) -> Iterator[Unseen]:
    """Ranks in another shell or on another host, for which those in a collective, or at their GPU, may only wait."""
    absent, table = view.once(ranks_elsewhere), view.once(places)
    kinds = [table.get(run.key, NOWHERE).kind for run in view.once(accused)]
    if absent and ("collective" in kinds or "driver" in kinds):
        yield Unseen("elsewhere", f"{', '.join(absent[:8])}{', …' if len(absent) > 8 else ''} not seen here, may still come")
    elif kinds == ["collective"]:
        yield Unseen("elsewhere", "it stands in a collective alone, so the other ranks of its group are not seen here, and may still come")


def _strangers(view: View) -> Iterator[Unseen]:
    """Partners whose own work cannot be seen: on other hosts, of other users, behind unix sockets."""
    ours = {process.pid for process in tree(view)}
    watched = {run.process.pid for run in view.once(peer_execution).runs if _is_closed(view, run)}
    serving = _ports(view)
    for one in sockets(view):
        outside = one.peer_pid is None or (one.peer_pid not in ours and one.peer_pid not in watched)
        if one.state == "ESTAB" and outside and _port(one.local) not in serving and _may_read(view, one.pid):
            where = f"pid {one.peer_pid}" if one.peer_pid is not None else "a process that is not visible here"
            yield Unseen("stranger", f"its connection to {one.peer} leads to {where}")
    for process in tree(view):
        for pipe in pipes(process):
            hidden = not pipe.peers_known or set(pipe.peers) - ours - watched
            if hidden and _at_pipe(view, process, pipe):
                yield Unseen("stranger", f"pid {process.pid} is at {pipe.name}, and what holds its other end was not looked at")
    for one in sockets(view):
        if knocks_here(view, one):
            yield Unseen("stranger", f"{one.peer}, to which it connects, is on this host: its listener lives and may still accept")
        elif one.state == "SYN-SENT":
            yield Unseen("stranger", f"its attempt to reach {one.peer} has no answer yet, which may come after some minutes, or never")
    locks = view.newest("locks")
    for lock in locks.value if isinstance(locks, Seen) else ():
        if lock.waiters and (not lock.holder_known or (lock.holder is not None and lock.holder not in ours | watched)):
            yield Unseen("stranger", f"the holder of the lock on {lock.path} is not visible")
        elif lock.waiters and lock.kind != "file" and (not lock.opened_known or set(lock.opened_by) - ours - watched):
            yield Unseen("stranger", f"who else has {lock.path} open, and may release its lock, was not looked at")


def knocks_here(view: View, one: SocketSample) -> bool:
    """Whether it is an attempt to connect to this very host. Without a listener it would be refused: the listener's backlog is full."""
    host = _host(one.peer)
    own = {_host(each.local) for _, found in readings(view.samples, "sockets") for each in found}
    return one.state == "SYN-SENT" and (host.startswith("127.") or host == "::1" or host in own)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]").removeprefix("::ffff:")


def _is_closed(view: View, run: Run) -> bool:
    """Whether nothing in a partner comes back by itself: it is stopped, or each of its threads is in a call without a limit of time."""
    calls = view.once(at_calls)
    held = [calls.get((run.process.pid, thread.tid)) for thread in run.process.threads]
    return run.process.state == "T" or all(one is not None and one.call not in ("", "poll") and not one.timed for one in held)


def _nowhere(view: View) -> Iterator[Unseen]:
    """Accused processes of which nobody knows what they wait for."""
    table = view.once(places)
    for run in view.once(accused):
        place = table.get(run.key, NOWHERE)
        if place.kind in ("pipe_read", "pipe_write") and not _pipes_known(view, run):
            yield Unseen("stranger", f"the pipes of pid {run.process.pid} cannot be read, so what is at the other end is not known")
        elif place.kind in ("recv", "connect") and not any(one.pid == run.process.pid for one in sockets(view)):
            yield Unseen("stranger", f"from whom pid {run.process.pid} receives is not known: no connection of it was seen")
        elif place.kind == "flock" and not _lock_known(view, run):
            yield Unseen("stranger", f"who holds the file lock that pid {run.process.pid} waits for is not known")
        elif not place.kind and run.frozen:
            yield Unseen("nowhere", f"what pid {run.process.pid} waits for is not known: no wait channel, no stack")
        elif place.kind == "unix" and not _inside(view, run):
            yield Unseen("stranger", f"pid {run.process.pid} reads a unix socket, whose other end is not visible")
        elif place.kind == "driver" and gpus_busy(view):
            yield Unseen("device", f"pid {run.process.pid} waits for its GPU, which may compute")
        elif place.kind in ("lock", "waits") and any(wchan_kind(channel) == "timer" for channel in run.others):
            yield Unseen("sleeper", f"pid {run.process.pid} has a thread in a long sleep, for which it may wait")


def _pipes_known(view: View, run: Run) -> bool:
    process = view.once(everyone).get(run.key)
    return process is not None and isinstance(process.pipes, Seen)


def _lock_known(view: View, run: Run) -> bool:
    outcome = view.newest("locks")
    return isinstance(outcome, Seen) and any(run.process.pid in lock.waiters for lock in outcome.value)


def gpus_busy(view: View) -> bool:
    """Utilisation proves no progress, but a GPU without any computes nothing. One that cannot be asked may compute."""
    outcome = view.newest("gpus")
    return not isinstance(outcome, Seen) or any(gpu.utilisation != 0 for gpu in outcome.value)


def _inside(view: View, run: Run) -> bool:
    """Whether another process of the tree stands still where it cannot go on: the likely other end."""
    table = view.once(places)
    others = [one for one in view.once(execution).runs if one.key != run.key and not is_helper(one, table.get(one.key, NOWHERE))]
    return any(one.frozen and table.get(one.key, NOWHERE).kind in ("lock", "flock", "pipe_read", "pipe_write") for one in others)


def _unread(view: View) -> Iterator[Unseen]:
    """Sources of progress that were not read twice since it stands still: motion there would not have shown."""
    since = view.once(stall).since
    recent = [sample for sample in view.samples if sample.t >= since]
    if len(list(readings(recent, "sockets"))) < 2:
        yield Unseen("unread", "its connections were not read twice")
    elif any(one.received is None and one.state in ("ESTAB", "MORE") and _port(one.local) not in _ports(view) for one in sockets(view)):
        yield Unseen("unread", "the byte counters of its connections cannot be read")
    log = view.current("log")
    if isinstance(log, Blind) and not unasked(log):
        yield Unseen("unread", f"its log cannot be read: {log.reason}")
    for run in view.once(execution).runs:
        if not isinstance(run.process.io, Seen):
            yield Unseen("unread", f"the bytes that pid {run.process.pid} reads cannot be seen")
    for process in tree(view):
        if process.state not in "ZXDT" and not _weights_read(recent, process):
            yield Unseen("unread", f"the mapped weights of pid {process.pid} cannot be seen")
    if view.once(execution).unseen:
        yield Unseen("unread", f"what pid {view.once(execution).unseen[0].pid} executes was not seen twice")


def _weights_read(recent: Sequence[Sample], process: ProcessSample) -> bool:
    """Whether mapped weights were looked for when they were last asked for. In state D nothing is mapped in by the process itself."""
    for sample in reversed(recent):
        row = rows(sample).get((process.pid, process.start))
        if row is not None and not unasked(row.mapped_weights):
            return not isinstance(row.mapped_weights, Blind)
    return False


def _idle(view: View) -> Iterator[Unseen]:
    """It listens, and where it stands does not tell a server that nobody asks from one that hangs."""
    listens = [one for one in sockets(view) if one.state == "LISTEN"]
    if not listens or in_flight(view):
        return
    table = view.once(places)
    if any(table.get(run.key, NOWHERE).kind == "collective" for run in view.once(accused)):
        return  # ranks listen for each other
    for run in view.once(accused):
        place = table.get(run.key, NOWHERE)
        if place.kind in ("lock", "loop", "waits") and any(one.pid == run.process.pid for one in listens):
            yield Unseen("idle", f"pid {run.process.pid} listens on {listens[0].local}, and no request is known to be open")


def _pollers(view: View) -> Iterator[Unseen]:
    """Other processes that wake now and then: they may wait for what is on its way."""
    table = view.once(places)
    chosen = {run.key for run in view.once(accused)}
    parents = {run.process.ppid for run in view.once(accused)}
    for run in view.once(execution).runs:
        if run.key in chosen or run.frozen or run.process.pid in parents or is_helper(run, table.get(run.key, NOWHERE)):
            continue
        yield Unseen("poller", f"{name(view, run.process)} wakes now and then, and what for is not known")


def in_flight(view: View) -> bool:
    """Whether a request is known to be open, so that an idle loop is no excuse. A check that gets no answer is one."""
    engine = view.newest("engine")
    busy = isinstance(engine, Seen) and ((engine.value.running or 0) + (engine.value.waiting or 0) > 0)
    if view.question.about == "request" or view.question.in_flight > 0 or busy:
        return True
    return bool(view.checks) and view.checks[-1].answer.outcome == "timeout"


def tree(view: View) -> tuple[ProcessSample, ...]:
    """Processes of the newest reading."""
    return tuple(view.once(everyone).values())


def sockets(view: View) -> tuple[SocketSample, ...]:
    """Connections of the newest reading."""
    outcome = view.newest("sockets")
    return outcome.value if isinstance(outcome, Seen) else ()


def pipes(process: ProcessSample) -> tuple[PipeSample, ...]:
    """The pipes of a process, where they were read."""
    return process.pipes.value if isinstance(process.pipes, Seen) else ()


def _at_pipe(view: View, process: ProcessSample, pipe: PipeSample) -> bool:
    """Whether a thread of the process is in a read or write of such a pipe end."""
    run = view.once(execution).of((process.pid, process.start))
    if run is None:
        return False
    wanted = "pipe_read" if pipe.end == "read" else "pipe_write"
    return wanted in {wchan_kind(channel) for channel in (run.wchan, *run.others)}


def _is_read(view: View, pid: int) -> bool:
    return _may_read(view, pid, ("recv", "loop"))


def _may_read(view: View, pid: int, kinds: tuple[str, ...] = ("recv", "loop", "")) -> bool:
    """Whether a thread of the process waits in a receive, in a loop over descriptors, or nobody knows where."""
    for run in view.once(execution).runs:
        if run.process.pid == pid:
            return any(wchan_kind(channel) in kinds for channel in (run.wchan, *(one.wchan for one in run.process.threads)))
    return "" in kinds


def _ports(view: View) -> frozenset[str]:
    """Ports at which the server listens: whoever is connected there waits for it, not it for them."""
    return frozenset(_port(one.address) for _, found in view.listeners() for one in found if one.ours)


def _port(address: str) -> str:
    return address.rsplit(":", 1)[-1]
