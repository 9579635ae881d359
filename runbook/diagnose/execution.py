"""What a tree executed in the newest stretch: frozen, waking now and then, busy. Per thread, since a frozen process has chatty ones.

A thread whose run time, wait time and context switches are all unchanged between two looks executed nothing at all. CPU is read as
demand, run time and time in the run queue together: on a busy host a spinning thread gets little of a core and wants all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runbook.diagnose.motion import Key, rows
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, Sample, Seen, ThreadSample

APART_S = 10.0
"""Two looks must lie this far apart to be compared."""
HOLD_S = 40.0
"""So long a tree must have stood still to be convicted by its budget: progress under every floor can have spent that before."""
WINDOW_S = 60.0
FRESH_S = 30.0
"""A newest look that is older says nothing about now."""
WORKS = 0.2
SPINS = 0.8
"""Cores that a thread demands: above the first it does something, above the second it never rests. Measured: a poller took 0.1."""


class Run(NamedTuple):
    """One live process, compared with how it was `seconds` ago, at least 10 s.

    `frozen`: its main thread executed nothing since then; `frozen_s`: and for how long in all. `demand`: its busiest thread's, cores;
    `demand_beside`: the busiest of those beside the main one; `demand_long`: the busiest over up to 40 s. `wakes`: main's switches per
    second. `wchan`: main's newest wait channel, `steady` when it was the same at every reading. `others`: wait channels of other threads
    that executed nothing. `faults`: page faults per second.
    """

    process: ProcessSample
    seconds: float
    frozen: bool
    frozen_s: float
    demand: float
    demand_beside: float
    demand_long: float
    wakes: float
    wchan: str
    steady: bool
    states: frozenset[str]
    others: tuple[str, ...]
    faults: float | None

    @property
    def key(self) -> Key:
        """pid and start."""
        return (self.process.pid, self.process.start)


class Execution(NamedTuple):
    """All processes that could be compared; `newborn` started in between, `unseen` have no thread times."""

    runs: tuple[Run, ...]
    newborn: tuple[ProcessSample, ...]
    unseen: tuple[ProcessSample, ...]
    seconds: float

    def of(self, key: Key) -> Run | None:
        """The run of one process."""
        return next((run for run in self.runs if run.key == key), None)


def execution(view: View) -> Execution:
    """In the last 60 s, not further back than the last strong progress."""
    start = max(view.once(stall).since, view.now - WINDOW_S)
    return _compare(
        [(sample, rows(sample)) for sample in view.samples if sample.t >= start and isinstance(sample.processes, Seen)], view.now
    )


def peer_execution(view: View) -> Execution:
    """The same for processes outside the tree that it may wait for."""
    start = max(view.once(stall).since, view.now - WINDOW_S)
    looks = [sample for sample in view.samples if sample.t >= start and isinstance(sample.peers, Seen)]
    return _compare([(sample, {(one.pid, one.start): one for one in _peers(sample)}) for sample in looks], view.now)


def _peers(sample: Sample) -> tuple[ProcessSample, ...]:
    return sample.peers.value if isinstance(sample.peers, Seen) else ()


def _compare(looks: Sequence[tuple[Sample, dict[Key, ProcessSample]]], now: float) -> Execution:
    looks = [look for look in looks if any(one.threads for one in look[1].values())] or list(looks[-1:])
    if not looks or now - looks[-1][0].t > FRESH_S:
        return Execution((), (), (), 0.0)
    runs, newborn, unseen = [], [], []
    for key, process in looks[-1][1].items():
        if process.state in "ZX":
            continue
        mine = [(sample.t, table[key]) for sample, table in looks if key in table and table[key].threads]
        if mine and mine[-1][0] - mine[0][0] >= APART_S:
            runs.append(_run(mine))
        elif mine and looks[-1][0].t - looks[0][0].t >= APART_S:
            newborn.append(process)
        else:
            unseen.append(process)
    return Execution(tuple(runs), tuple(newborn), tuple(unseen), looks[-1][0].t - looks[0][0].t)


def _run(looks: Sequence[tuple[float, ProcessSample]]) -> Run:
    ended, last = looks[-1]
    began, first = next(look for look in reversed(looks) if ended - look[0] >= APART_S)
    seconds = ended - began
    before = {thread.tid: thread for thread in first.threads}
    main = next((thread for thread in last.threads if thread.tid == last.pid), last.threads[0])
    old = before.get(main.tid)
    frozen_s = _frozen_s(looks, main)
    channels = [_channel(process, main.tid) for t, process in looks if t >= began]
    known = [channel for channel in channels if channel]
    faults = (last.faults - first.faults) / seconds if last.faults is not None and first.faults is not None else None
    return Run(
        process=last,
        seconds=seconds,
        frozen=frozen_s >= APART_S,
        frozen_s=frozen_s,
        demand=_busiest(first, last, seconds),
        demand_beside=_busiest(first, last, seconds, beside=main.tid),
        demand_long=_busiest(*_long(looks)),
        wakes=(main.switches - old.switches) / seconds if old is not None else 0.0,
        wchan=known[-1] if known else "",
        steady=len(known) >= 2 and len(set(known)) == 1,
        states=frozenset(thread.state for t, process in looks if t >= began for thread in process.threads if thread.tid == main.tid),
        others=tuple(t.wchan for t in last.threads if t.tid != main.tid and t.tid in before and t.wchan and _still(before[t.tid], t)),
        faults=faults,
    )


def _frozen_s(looks: Sequence[tuple[float, ProcessSample]], main: ThreadSample) -> float:
    """How long the main thread has executed nothing."""
    since = ended = looks[-1][0]
    for t, process in reversed(looks):
        then = next((thread for thread in process.threads if thread.tid == main.tid), None)
        if then is None or not _still(then, main):
            break
        since = t
    return ended - since


def _long(looks: Sequence[tuple[float, ProcessSample]]) -> tuple[ProcessSample, ProcessSample, float]:
    ended, last = looks[-1]
    began, first = next((look for look in reversed(looks) if ended - look[0] >= HOLD_S), looks[0])
    return first, last, ended - began


def _busiest(first: ProcessSample, last: ProcessSample, seconds: float, beside: int = 0) -> float:
    before = {thread.tid: thread for thread in first.threads}
    return max((_demand(before.get(one.tid), one, seconds) for one in last.threads if one.tid != beside), default=0.0)


def _channel(process: ProcessSample, tid: int) -> str:
    found = next((thread.wchan for thread in process.threads if thread.tid == tid), "")
    return "" if found == "0" else found


def _still(before: ThreadSample, after: ThreadSample) -> bool:
    same = (before.run_ns, before.wait_ns, before.switches) == (after.run_ns, after.wait_ns, after.switches)
    return same and after.state != "R"


def _demand(before: ThreadSample | None, after: ThreadSample, seconds: float) -> float:
    """Cores that a thread used or waited for. One that runs has its open slice not yet counted, which is left out."""
    old = before or ThreadSample(tid=after.tid, state="", run_ns=0, wait_ns=0, switches=0)
    return max(0.0, (after.run_ns - old.run_ns + after.wait_ns - old.wait_ns) / 1e9 / seconds)
