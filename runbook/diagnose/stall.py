"""The stall clock: the second of the two clocks of a wait. The first is its time box; this one is renewed by observed progress.

Strong progress resets it. Under weak signs of life (lines that only repeat, traffic under the floor, CPU) it runs at half speed. It
stands still while nobody could look. Its budget is the phase's; a host under pressure doubles it, and a verdict says so.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from runbook.diagnose.motion import Key, rows
from runbook.diagnose.view import View
from runbook.model.sample import Absent, Blind, Sample, Seen, ThreadSample

DEFAULT_BUDGET_S = 30.0
"""Of a phase that the profile does not know. Like the budgets of the profiles it is not calibrated on real servers. It may be short,
since time alone convicts nobody, and a tree must have stood still for 40 s besides."""
PRESSED_PERCENT = 50.0
PRESSURE_S = 30.0
SLOW_LINK = 3.0
SLOW_LINK_FLOOR_S = 1.5
"""A look may wait 1.2 s for its health check, so shorter round trips say nothing about the host."""
LONGEST_STEP_S = 45.0
"""A longer gap between two looks counts as this much: the controller, or the host, may have been asleep. Old looks stand 30 s apart."""
CPU_SIGN = 0.5
"""Cores that a tree must use for its CPU to be a sign of life."""
FROZEN_CAP_S = 120.0
"""A long budget stands for work that no counter shows, as repacking weights. A tree that executes nothing at all does no such work."""


class Stall(NamedTuple):
    """`since`: controller time of the last strong progress, else of the first look. `spent_s` of `budget_s` on the stall clock."""

    since: float
    wall_s: float
    spent_s: float
    budget_s: float
    phase: str | None
    notes: tuple[str, ...]
    overridden: bool

    def over(self, times: float = 1.0) -> bool:
        """Whether the budget is spent so many times over."""
        return self.spent_s >= self.budget_s * times

    def over_frozen(self, times: float = 1.0, *, plain: bool = False) -> bool:
        """The same for a tree that executes nothing: the budget is capped, unless the author set it.

        plain: the time itself counts, since what still shows weak signs is known to be beside the point.
        """
        return (self.wall_s if plain else self.spent_s) >= self.frozen_budget_s * times

    @property
    def frozen_budget_s(self) -> float:
        """The budget of a tree that executes nothing."""
        return self.budget_s if self.overridden else min(self.budget_s, FROZEN_CAP_S * (2.0 if self.notes else 1.0))


def stall(view: View) -> Stall:
    """The stall clock now."""
    since = last_strong(view)
    samples = [sample for sample in view.samples if sample.t > since]
    signs = _signs(view, since)
    spent = wall = 0.0
    at = since
    for sample in samples:
        step = min(LONGEST_STEP_S, sample.t - at)
        if not _blind(sample):
            wall += step
            spent += step / 2 if sample.t in signs else step
        at = sample.t
    tail = min(LONGEST_STEP_S, max(0.0, view.now - at))
    notes = _pressure(view)
    base, overridden = _budget(view)
    return Stall(
        since, wall + tail, spent + tail, base * (2.0 if notes and not overridden else 1.0), view.course.current, notes, overridden
    )


def last_strong(view: View) -> float:
    """Controller time of the newest strong progress, else of the first look."""
    strong = next((motion.t for motion in reversed(view.motions) if motion.strong), None)
    return strong if strong is not None else (view.samples[0].t if view.samples else view.now)


def _budget(view: View) -> tuple[float, bool]:
    """The longest budget of the phases that are open: a rank may lag behind the one that the log names last."""
    if view.question.stall_after_s is not None:
        return view.question.stall_after_s, True
    known = {phase.id: float(phase.stall) for phase in view.profile.phases}
    course = view.course
    current = "serving" if course.ready_at is not None else course.current
    names = {current} if course.ready_at is not None else {current, *course.last_per_rank().values()}
    found = [known[name] for name in names if name in known]
    return (max(found) if found else DEFAULT_BUDGET_S), False


def _signs(view: View, since: float) -> set[float]:
    """Times of the samples whose step before them showed a weak sign of life."""
    signs = {motion.t for motion in view.motions if motion.t > since and not motion.strong}
    signs |= {repeat.t for repeat in view.log.repeats if repeat.t > since}
    readable = [sample for sample in view.samples if sample.t >= since and any(one.threads for one in rows(sample).values())]
    for before, after in itertools.pairwise(readable):
        if _ran_ns(before, after) >= CPU_SIGN * 1e9 * (after.t - before.t):
            signs |= {sample.t for sample in view.samples if before.t < sample.t <= after.t}
    return signs


def _ran_ns(before: Sample, after: Sample) -> int:
    old = {key: sum(thread.run_ns for thread in process.threads) for key, process in rows(before).items()}
    return sum(max(0, sum(thread.run_ns for thread in process.threads) - old.get(key, 0)) for key, process in rows(after).items())


def _blind(sample: Sample) -> bool:
    """Nobody could look: the host was out of reach, or neither its processes nor its log could be read."""
    return isinstance(sample.link, Absent) or (isinstance(sample.processes, Blind) and isinstance(sample.log, Blind))


def _pressure(view: View) -> tuple[str, ...]:
    """Why the host counts as pressed, in words; empty when it does not, or when that cannot explain the silence.

    A thread that is not even in the run queue does not suffer from a busy host, nor one that waits for no disk from slow disks.
    """
    recent = [sample for sample in view.samples if sample.t >= view.now - PRESSURE_S]
    found = []
    readings = [sample.pressure.value for sample in recent if isinstance(sample.pressure, Seen)]
    suffers = {"cpu": _queued, "io": _in_io}
    for name in ("cpu", "io"):
        highest = max((getattr(one, name) for one in readings), default=0.0)
        if highest > PRESSED_PERCENT and suffers[name](recent):
            found.append(f"tasks on the host waited for {name} {highest:.0f} % of the time")
    trips = [sample.link.value for sample in view.samples if isinstance(sample.link, Seen)]
    now = [sample.link.value for sample in recent if isinstance(sample.link, Seen)]
    if len(trips) > len(now) >= 3:
        usual, lately = statistics.median(trips), statistics.median(now)
        if lately > max(SLOW_LINK_FLOOR_S, SLOW_LINK * usual):
            found.append(f"round trips take {lately:.1f} s instead of {usual:.1f} s")
    return tuple(found)


def _mains(sample: Sample) -> dict[Key, ThreadSample]:
    """The main threads of the tree, where their times were read."""
    return {key: thread for key, process in rows(sample).items() for thread in process.threads if thread.tid == process.pid}


def _queued(recent: Sequence[Sample]) -> bool:
    """Whether a main thread waited for a CPU, or nobody could see that it did not."""
    seen = [(sample.t, mains) for sample in recent if (mains := _mains(sample))]
    if len(seen) < 2:
        return True
    (_, first), (_, last) = seen[0], seen[-1]
    return any(thread.state == "R" or (key in first and thread.wait_ns > first[key].wait_ns) for key, thread in last.items())


def _in_io(recent: Sequence[Sample]) -> bool:
    """Whether a process was in state D, or nobody could see that none was."""
    states = [process.state for sample in recent for process in rows(sample).values()]
    return not states or "D" in states
