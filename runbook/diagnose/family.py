"""Who is who in a server's tree: its main process, its ranks and workers, helpers that only wait for tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from runbook.diagnose.execution import Run, execution
from runbook.diagnose.motion import Key, rows
from runbook.diagnose.places import NOWHERE, Place, places
from runbook.diagnose.progress import unasked
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, Seen

HELPERS = re.compile(r"resource_tracker|semaphore_tracker|forkserver|multi[-_]?processing\.(?:resource|fork)|compile_worker|\[sh\]$")
SUPERVISES = frozenset({"child", "loop"})
"""Where a main process stands that only looks after its children, or after requests."""


def everyone(view: View) -> dict[Key, ProcessSample]:
    """The processes of the newest reading, each with what the newest full look knew of it: pipes, files, stdin, memory."""
    readable = [sample for sample in view.samples if isinstance(sample.processes, Seen)]
    found = dict(rows(readable[-1])) if readable else {}
    missing = {key for key, process in found.items() if unasked(process.pipes)}
    for sample in reversed(readable[:-1]):
        if not missing:
            break
        table = rows(sample)
        for key in [key for key in missing if key in table and not unasked(table[key].pipes)]:
            missing.discard(key)
            older = table[key]
            kept = {name: getattr(older, name) for name in ("pipes", "files", "stdin", "locked", "shared", "mapped_weights")}
            found[key] = msgspec.structs.replace(found[key], **kept)
    return found


def rank_mains(processes: Sequence[ProcessSample]) -> dict[int, ProcessSample]:
    """The process of each rank that lives."""
    by_pid = {process.pid: process for process in processes}
    found: dict[int, ProcessSample] = {}
    for process in sorted(processes, key=lambda one: (one.start, one.pid)):
        if process.rank is not None and process.state not in "ZX" and is_topmost(process, by_pid):
            found.setdefault(process.rank, process)
    return found


def is_topmost(process: ProcessSample, by_pid: Mapping[int, ProcessSample]) -> bool:
    """Whether none above it bears its rank's number: workers, profilers and pagers inherit the environment of their rank."""
    passed = {process.pid}
    above = by_pid.get(process.ppid)
    while above is not None and above.pid not in passed:
        if above.rank == process.rank:
            return False
        passed.add(above.pid)
        above = by_pid.get(above.ppid)
    return True


def ranks(view: View) -> dict[int, ProcessSample]:
    """The ranks that live now."""
    return rank_mains(tuple(view.once(everyone).values()))


def ranks_elsewhere(view: View) -> tuple[str, ...]:
    """Ranks of the group that no sample shows, in words: in another shell or on another host they may be on their way.

    The group's size is what the environment of its ranks says, and at least one more than the highest number.
    """
    here = view.once(ranks)
    if not here:
        return ()
    size = max([max(here) + 1, view.question.ranks or 0, *(one.world or 0 for one in here.values())])
    known = {process.rank for sample in view.samples for process in rows(sample).values()}
    return tuple(f"rank {number} of {size}" for number in range(size) if number not in known)


def rank_of(view: View, key: Key) -> int | None:
    """The rank whose main process this is."""
    return next((rank for rank, process in view.once(ranks).items() if (process.pid, process.start) == key), None)


def accused(view: View) -> tuple[Run, ...]:
    """The processes whose stand-still would be the server's: its ranks and workers where there are any, and its main process.

    A main process that only looks after its children, or after requests, hands the question down to them.
    """
    runs = {run.key: run for run in view.once(execution).runs}
    chosen = {(one.pid, one.start) for one in view.once(ranks).values()} | _workers(view)
    main = view.main
    if main is not None and (main.pid, main.start) in runs:
        place = view.once(places).get((main.pid, main.start), NOWHERE)
        if not _supervises(runs[main.pid, main.start], place):
            chosen.add((main.pid, main.start))
        elif not chosen:
            chosen = _below(view, main)
    return tuple(runs[key] for key in sorted(chosen) if key in runs)


def _supervises(run: Run, place: Place) -> bool:
    return place.kind in SUPERVISES or (not run.frozen and run.demand < 0.2)


def _workers(view: View) -> set[Key]:
    pattern = view.profile.processes.workers
    if not pattern or view.last is None:
        return set()
    found = re.compile(pattern)
    return {key for key, process in rows(view.last).items() if process.state not in "ZX" and found.search(process.title)}


def _below(view: View, main: ProcessSample) -> set[Key]:
    """Children of a supervisor that are no helpers; below those that supervise themselves, theirs.

    A worker without a task stands still too. So unless their parent waits for their end, only those count whose stack says where.
    """
    runs = {run.key: run for run in view.once(execution).runs}
    table = view.once(places)
    waited_for = table.get((main.pid, main.start), NOWHERE).kind == "child"
    found: set[Key] = set()
    queue = [main.pid]
    while queue:
        pid = queue.pop()
        for key, run in runs.items():
            place = table.get(key, NOWHERE)
            if run.process.ppid != pid or is_helper(run, place) or _is_fed(view, run, place):
                continue
            if place.kind == "child":
                queue.append(key[0])
            elif waited_for or (place.source != "wchan" and place.blocked):
                found.add(key)
    return found


def _is_fed(view: View, run: Run, place: Place) -> bool:
    """Whether it reads a pipe that only those above it write: a helper or a worker that waits for its next task."""
    process = view.once(everyone).get(run.key)
    if place.kind not in ("pipe_read", "idle") or process is None or not isinstance(process.pipes, Seen):
        return False
    inlets = [pipe for pipe in process.pipes.value if pipe.end == "read" and pipe.fd != 0 and pipe.name.startswith("pipe:")]
    above = {process.pid, *(one.pid for one in ancestors(view, process))}
    return bool(inlets) and all(pipe.peers_known and set(pipe.peers) <= above for pipe in inlets)


def ancestors(view: View, process: ProcessSample) -> tuple[ProcessSample, ...]:
    """The processes of the tree above it, the nearest first."""
    table = {one.pid: one for one in view.once(everyone).values()}
    found: dict[int, ProcessSample] = {}
    pid = process.ppid
    while pid in table and pid not in found:
        found[pid] = table[pid]
        pid = table[pid].ppid
    return tuple(found.values())


def is_helper(run: Run, place: Place) -> bool:
    """Whether it only waits for tasks, by its title or by its stack."""
    return HELPERS.search(run.process.title) is not None or place.kind == "idle"


def name(view: View, process: ProcessSample) -> str:
    """A process as people name it: "rank 3, pid 4711 `title`"."""
    rank = rank_of(view, (process.pid, process.start))
    main = view.main
    who = "the main process, " if main is not None and main.pid == process.pid else ""
    return f"{who if rank is None else f'rank {rank}, '}pid {process.pid} `{process.title.strip()[:80]}`"
