"""Who stands where, and for whom it waits: shared by the rules about blocked processes."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose.actors import pipes, sockets
from runbook.diagnose.calls import at_calls
from runbook.diagnose.execution import Run, execution, peer_execution
from runbook.diagnose.family import everyone, is_helper
from runbook.diagnose.motion import readings
from runbook.diagnose.places import NOWHERE, Place, places, wchan_kind
from runbook.diagnose.standstill import standstill
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample


def frozen_at(view: View, kinds: tuple[str, ...] | None = None) -> list[tuple[Run, Place]]:
    """Accused processes that executed nothing, at such a place."""
    return [(run, place) for run, place in stuck_at(view, view.once(standstill).frozen) if kinds is None or place.kind in kinds]


def stuck_at(view: View, runs: Sequence[Run]) -> list[tuple[Run, Place]]:
    """Those of the runs that wait at the same place twice, each with it."""
    table = view.once(places)
    pairs = [(run, table.get(run.key, NOWHERE)) for run in runs]
    return [(run, place) for run, place in pairs if place.blocked]


def last_in_chain(view: View, run: Run) -> ProcessSample:
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


def partner_of(view: View, run: Run) -> ProcessSample | None:
    """The process at the other end of what its main thread reads, where exactly one can be it."""
    pid = run.process.pid
    known = [*view.once(everyone).values(), *(one.process for one in view.once(peer_execution).runs)]
    call = view.once(at_calls).get((pid, pid))
    pids = _other_ends(view, run) if call is None else set(call.peers) if call.call == "read" and call.peers_known else set()
    partner = next(iter(pids)) if len(pids) == 1 else None
    return next((one for one in known if one.pid == partner != pid), None)


def _other_ends(view: View, run: Run) -> set[int | None]:
    """Who is at the other end of whatever it could be reading, by the kind of its wait channel; None among them for who is not visible."""
    kind = wchan_kind(run.wchan)
    if kind == "recv":
        return {one.peer_pid for one in sockets(view) if one.pid == run.process.pid and one.state not in ("LISTEN", "SYN-SENT")}
    mine = view.once(everyone).get(run.key)
    inlets = [pipe for pipe in pipes(mine) if pipe.end == "read"] if mine is not None and kind == "pipe_read" else []
    return {peer for pipe in inlets for peer in (pipe.peers if pipe.peers_known else (None,))}
