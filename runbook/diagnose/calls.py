"""The system calls in which threads stand, as the looks bear them out: no thread that executed anything since counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runbook.diagnose.execution import APART_S
from runbook.diagnose.motion import Key, readings, rows
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, Seen, ThreadSample
from runbook.model.waits import CallSample, WaitSample

Tid = tuple[int, int]
"""A thread: its process's pid and its own id."""
READS = ("read", "poll")
"""Calls that end when somebody sends."""
FAR_ENDED = (*READS, "write")
"""Calls that end by whoever has the other end. A write to a pipe waits until somebody reads that."""
ENDING = frozenset({4, 6, 7, 8, 11, 32, 33})
"""Signals that end a process or are the C library's own: ILL, ABRT, BUS, FPE, SEGV. A handler of another may wake it for good."""


def at_calls(view: View) -> Mapping[Tid, CallSample]:
    """Threads that have executed nothing since they were seen in a system call, each with it."""
    since = view.once(stall).since
    found = {}
    for sample, waits in readings(view.samples, "calls"):
        for one in waits if sample.t >= since else ():
            looks = view.once(looks_of).get((one.pid, one.start), [])
            found.update({(one.pid, call.tid): call for call in one.threads if _stood(looks, call.tid, sample.t)})
    return found


def waits_here(call: CallSample | None) -> bool:
    """Whether a thread waits for its own process, without a limit of time."""
    return call is not None and call.private and not call.timed


def woken_by_signals(view: View, but: frozenset[int] = ENDING) -> frozenset[int]:
    """Processes that handle other signals than these, or of which that is not known; that have a timer which sends one; and whose main
    thread expects the interrupt of a keyboard."""
    waits = view.newest("calls")
    read = waits.value if isinstance(waits, Seen) else ()
    return view.once(interruptible) | {one.pid for one in read if one.alarm or one.caught is None or set(one.caught) - but}


def interruptible(view: View) -> frozenset[int]:
    """Processes that go on after SIGINT, by the source of what their main thread is in."""
    taken = [sample.stacks.value for sample in view.samples if sample.t >= view.once(stall).since and isinstance(sample.stacks, Seen)]
    return frozenset(stack.pid for stacks in taken for stack in stacks if stack.main and stack.interrupts)


def waits_of(view: View, pid: int) -> WaitSample | None:
    """What was last read of a process's waits."""
    waits = view.newest("calls")
    return next((one for one in (waits.value if isinstance(waits, Seen) else ()) if one.pid == pid), None)


def has_timer(view: View, pid: int) -> bool:
    """Whether a timer of its own ends it, or that is not known. Source does not tell: any module may set one."""
    waits = waits_of(view, pid)
    return waits is None or waits.alarm is not False


def _stood(looks: Sequence[tuple[float, ProcessSample]], tid: int, t: float) -> bool:
    """Whether a thread executed nothing from before `t` until after it and until now, for ten seconds or longer."""
    times = []
    last: ThreadSample | None = None
    for at, process in looks:
        row = next((one for one in process.threads if one.tid == tid), None)
        last = last or row
        if row is None or last is None or row.state == "R" or _clocks(row) != _clocks(last):
            break
        times.append(at)
    return bool(times) and times[0] - times[-1] >= APART_S and times[-1] <= t < times[0]


def _clocks(row: ThreadSample) -> tuple[int, int, int]:
    return row.run_ns, row.wait_ns, row.switches


def looks_of(view: View) -> Mapping[Key, list[tuple[float, ProcessSample]]]:
    """The readings of each process with its threads, of the tree and of the peers, newest first."""
    found: dict[Key, list[tuple[float, ProcessSample]]] = {}
    for sample in reversed(view.samples):
        peers = sample.peers.value if isinstance(sample.peers, Seen) else ()
        for process in (*rows(sample).values(), *peers):
            if process.threads:
                found.setdefault((process.pid, process.start), []).append((sample.t, process))
    return found
