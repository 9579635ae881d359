"""hung/deadlock, blocked_peer, io_blocked: every thread that matters stands where it cannot go on by itself."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose.actors import actors, sockets
from runbook.diagnose.child_progress import is_downloader
from runbook.diagnose.execution import APART_S, Run, execution, peer_execution
from runbook.diagnose.family import everyone, is_helper, name
from runbook.diagnose.motion import readings
from runbook.diagnose.places import NOWHERE, Place, places, wchan_kind
from runbook.diagnose.ranks import stack_groups
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, proven, standstill, verdict
from runbook.diagnose.turning import all_in_collective
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, SocketSample
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Diagnosis

DOWNLOAD_BYTES = 1024 * 1024
CONNECT_S = 60.0
"""Collective libraries try to connect for about a minute by design, so a shorter attempt is only a suspicion."""


def io_blocked(view: View) -> Diagnosis | None:
    """hung/io_blocked: when the stall budget is spent, nothing executed, and a main thread stands in the kernel's I/O, state D, with the
    same wait channel at every look and no byte moving; or when a download that was under way brings no byte for twice that budget.

    its live twins: a slow disk, whose reader is in state D most of the time while bytes come; swapping; a slow download.
    """
    flat = _flat_download(view)
    if flat is not None:
        return flat
    stuck = _frozen(view, ("io",)) or [one for one in _frozen(view) if "D" in one[0].states]
    confidence = proven(view) if stuck else None
    if confidence is None or not view.once(standstill).has("execution"):
        return None
    run, place = stuck[0]
    return verdict(
        view,
        "io_blocked",
        "io_blocked",
        f"{name(view, run.process)} waits for a disk, a network file system or a child that never comes back",
        accuse=_last_in_chain(view, run),
        note=f"state {'/'.join(sorted(run.states))}, waits in {place.text}",
        confidence=confidence,
        next_looks=("see whether that file system answers: `timeout 5 ls PATH`", "and what the kernel says: `dmesg | tail`"),
    )


def _flat_download(view: View) -> Diagnosis | None:
    """Bytes came over a connection to another host, and then none for twice the budget, while the downloader waits for them."""
    stand = view.once(standstill)
    if not stand.clock.over(2.0) or stand.actors or excused(view) or not stand.has("data") or not stand.has("execution"):
        return None
    if any(one.kind not in ("stranger", "sleeper") for one in stand.unseen):
        return None
    for run, place in _frozen(view, ("recv",)):
        fed = [
            one for one in sockets(view) if one.pid == run.process.pid and one.state == "ESTAB" and (one.received or 0) >= DOWNLOAD_BYTES
        ]
        if not fed or not (is_downloader(run.process.title) or place.source != "wchan"):
            continue
        text = f"{format_size(fed[0].received or 0)} came from {fed[0].peer}, and no byte for {format_duration(stand.clock.wall_s)}"
        return verdict(
            view,
            "io_blocked",
            "io_blocked",
            f"{name(view, run.process)} waits for a download that brings nothing any more",
            accuse=run.process,
            note=f"downloads from {fed[0].peer}",
            proofs=(Proof("coordination", "received", fed[0].received, text, stand.clock.wall_s),),
            confidence="likely",
            next_looks=("try the same address by another way: `curl -I URL`", "start the download again: most go on where they stood"),
        )
    return None


def blocked_peer(view: View) -> Diagnosis | None:
    """hung/blocked_peer: when a frozen thread reads from a partner that is dead or stopped, at two looks ≥ 10 s apart; or, once the stall
    budget is spent, from one that stands still as well, with no byte between them; or when an attempt to connect has no answer.

    its live twins: a slow download, of which only TCP counters tell; a partner that computes; one on another host that nobody can see.
    """
    if view.once(actors) or excused(view):
        return None
    gone = _dead_partner(view)
    if gone is not None:
        return gone
    lost = _unanswered(view)
    if lost is not None:
        return lost
    stuck = _frozen(view, ("recv", "unix", "pipe_read", "connect"))
    confidence = proven(view) if stuck else None
    if confidence is None or not view.once(standstill).has("execution"):
        return None
    run, place = stuck[0]
    partner = _partner(view, run)
    who = f", as does pid {partner.pid} `{partner.title[:60]}` at the other end" if partner is not None else ""
    proof = Proof("coordination", "partner", partner.pid if partner else None, f"no byte comes from the other end{who}", run.seconds)
    return verdict(
        view,
        "blocked_peer",
        "blocked_peer",
        f"{name(view, run.process)} waits for a partner that sends nothing",
        accuse=partner or run.process,
        note="stands still while its partner waits" if partner else f"waits in {place.text}",
        proofs=(proof,),
        confidence=confidence,
        next_looks=("look at the partner: its stack, its log", "`ss -tinp` shows when the last byte came"),
    )


def deadlock(view: View) -> Diagnosis | None:
    """hung/deadlock: when the stall budget is spent, every main thread that matters executed nothing, one of them stands at a lock or in a
    wait that somebody here would have to end, no byte moved, and nobody works.

    its live twins: a main thread that waits while another reads or computes; an idle server; a sleep that ends by itself.
    """
    stuck = _frozen(view, ("lock", "collective", "child", "pipe_write", "driver", "waits", "tty"))
    if all_in_collective(view):
        stuck += _stuck(view, view.once(standstill).spinning)
    confidence = proven(view) if stuck else None
    if confidence is None or not view.once(standstill).has("execution"):
        return None
    groups = view.once(stack_groups)
    odd = groups.odd if groups is not None else None
    run, place = next((one for one in stuck if _is_rank(view, one[0], odd)), None) or next(
        (o for o in stuck if o[1].kind == "lock"), stuck[0]
    )
    culprit = _last_in_chain(view, run) if groups is None or odd is not None else None
    return verdict(
        view,
        "deadlock",
        "deadlock",
        f"{name(view, run.process)} waits for what nobody here will do",
        accuse=culprit,
        note=f"waits in {place.text}",
        confidence=confidence,
    )


def _at_lock(stuck: list[tuple[Run, Place]]) -> tuple[Run, Place]:
    return next((one for one in stuck if one[1].kind == "lock"), stuck[0])


def _is_rank(view: View, run: Run, rank: int | None) -> bool:
    return rank is not None and run.process.rank == rank


def _frozen(view: View, kinds: tuple[str, ...] | None = None) -> list[tuple[Run, Place]]:
    """Accused processes that executed nothing, at such a place."""
    return [(run, place) for run, place in _stuck(view, view.once(standstill).frozen) if kinds is None or place.kind in kinds]


def _stuck(view: View, runs: Sequence[Run]) -> list[tuple[Run, Place]]:
    table = view.once(places)
    pairs = [(run, table.get(run.key, NOWHERE)) for run in runs]
    return [(run, place) for run, place in pairs if place.blocked]


def _last_in_chain(view: View, run: Run) -> ProcessSample:
    """Whoever stands at the end: a child for which it waits, the holder of its lock, the other end of its pipe."""
    seen: set[int] = set()
    process = run.process
    while process.pid not in seen:
        seen.add(process.pid)
        following = _waits_for(view, process)
        if following is None:
            break
        process = following
    return process


def _waits_for(view: View, process: ProcessSample) -> ProcessSample | None:
    table = view.once(everyone)
    run = view.once(execution).of((process.pid, process.start))
    kind = view.once(places).get((process.pid, process.start), NOWHERE).kind or wchan_kind(run.wchan if run else "")
    if kind == "child":
        children = [one for one in table.values() if one.ppid == process.pid and one.state not in "ZX" and _matters(view, one)]
        return children[0] if len(children) == 1 else None
    for _, locks in reversed(list(readings(view.samples, "locks"))):
        holder = next((lock.holder for lock in locks if process.pid in lock.waiters and lock.holder not in (None, process.pid)), None)
        return next((one for one in table.values() if one.pid == holder), None)
    return None


def _matters(view: View, process: ProcessSample) -> bool:
    run = view.once(execution).of((process.pid, process.start))
    return run is not None and not is_helper(run, view.once(places).get(run.key, NOWHERE))


def _partner(view: View, run: Run) -> ProcessSample | None:
    """The process at the other end, where exactly one can be it."""
    found: dict[int, ProcessSample] = {}
    known = [*view.once(everyone).values(), *(one.process for one in view.once(peer_execution).runs)]
    pids = {one.peer_pid for one in sockets(view) if one.pid == run.process.pid and one.state == "ESTAB"}
    mine = view.once(everyone).get(run.key)
    if mine is not None and getattr(mine.pipes, "value", None):
        pids |= {peer for pipe in mine.pipes.value if pipe.end == "read" for peer in pipe.peers}  # type: ignore[union-attr]
    for process in known:
        if process.pid in pids and process.pid != run.process.pid:
            found[process.pid] = process
    return next(iter(found.values())) if len(found) == 1 else None


def _dead_partner(view: View) -> Diagnosis | None:
    if view.once(stall).wall_s < APART_S:
        return None
    for run, place in _frozen(view, ("recv", "pipe_read", "unix")):
        partner = _partner(view, run)
        if run.seconds < APART_S or partner is None or partner.state not in "TZ":
            continue
        state = "stopped" if partner.state == "T" else "dead"
        text = f"the other end, pid {partner.pid} `{partner.title[:60]}`, is {state}"
        return verdict(
            view,
            "blocked_peer",
            "blocked_peer",
            f"{name(view, run.process)} waits for a partner that is {state}",
            accuse=partner,
            note=f"{state}, and its partner waits for it in {place.text}",
            proofs=(Proof("coordination", "partner_state", partner.state, text, run.seconds),),
        )
    return None


def _unanswered(view: View) -> Diagnosis | None:
    """An attempt to connect that had no answer for a minute, though somebody waits for it."""
    clock = view.once(stall)
    looks = [(sample.t, {(one.pid, one.local, one.peer): one for one in value}) for sample, value in readings(view.samples, "sockets")]
    looks = [look for look in looks if look[0] >= clock.since]
    if len(looks) < 2 or not clock.over() or clock.wall_s < CONNECT_S or not view.once(standstill).has("data"):
        return None
    for ends, one in looks[-1][1].items():
        held = [t for t, table in looks if ends in table and table[ends].state == "SYN-SENT"]
        if one.state == "SYN-SENT" and held[-1] - held[0] >= APART_S:
            return _unanswered_verdict(view, one, held[-1] - held[0])
    return None


def _unanswered_verdict(view: View, one: SocketSample, seconds: float) -> Diagnosis:
    process = next((each for each in view.once(everyone).values() if each.pid == one.pid), None)
    text = f"its attempt to reach {one.peer} from {one.local} has no answer for {format_duration(seconds)}"
    return verdict(
        view,
        "blocked_peer",
        "blocked_peer",
        f"{name(view, process) if process else f'pid {one.pid}'} cannot reach its partner",
        accuse=process,
        note=f"connects to {one.peer}",
        proofs=(Proof("coordination", "syn_sent", one.peer, text, seconds),),
        next_looks=("is that address reachable, by the interface it uses?", "collective libraries take the interface from a variable"),
    )
