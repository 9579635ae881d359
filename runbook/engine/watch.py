"""The only loop that waits. A goal looks and judges; this owns the time box, the journal and Ctrl-C."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from runbook.diagnose.thin import carry_log
from runbook.engine.doubt import Doubt, ended_on_suspicion
from runbook.hosts.base import Cancelled, CancelToken, Unreachable
from runbook.model.clock import Clock
from runbook.model.event import Event, Moved, PhaseReached, SampleTaken
from runbook.model.sample import Absent, Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Goal, Judged, TellsRanks

KEEP_S = 120.0
"""The journal keeps all samples of this time before a verdict …"""
THIN_S = 30.0
"""… and one in this time before that."""
SPEAK_S = 10.0
"""At most one `moved` event in this time."""


class Waiter(Protocol):
    """What the loop needs from the step's context."""

    clock: Clock
    cancel: CancelToken
    step: str
    target: str

    def remaining_s(self) -> float:
        """Seconds left in the time box."""
        ...

    def emit(self, event: Event) -> None:
        """Write an event."""
        ...


class Memory:
    """Samples that `judge` sees: all of the last 120 s, and one every 30 s before; log lines of the others are carried on."""

    def __init__(self) -> None:
        self._old: list[Sample] = []
        self._recent: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        """Take a sample in and thin out what has become old. The first one always stays."""
        self._recent.append(sample)
        while self._recent[0].t < sample.t - KEEP_S:
            oldest = self._recent.popleft()
            if not self._old or oldest.t - self._old[-1].t >= THIN_S:
                self._old.append(oldest)
            else:
                self._recent[0] = carry_log(oldest, self._recent[0])

    def view(self) -> list[Sample]:
        """The samples, oldest first."""
        return [*self._old, *self._recent]


def watch(goal: Goal, waiter: Waiter) -> Diagnosis:
    """Look until the goal is judged or the box ends; then the goal must answer. Raises Cancelled on Ctrl-C."""
    memory = Memory()
    speaker = _Speaker(waiter)
    doubt = Doubt(goal, waiter) if isinstance(goal, Judged) else None
    began = waiter.clock.monotonic()
    while True:
        if waiter.cancel.is_set():
            raise Cancelled("interrupted while waiting")
        turn = waiter.clock.monotonic()
        sample = _look(goal, waiter)
        memory.add(sample)
        ends = "box" if waiter.remaining_s() <= 0 else "suspect" if doubt is not None and doubt.is_enough() else ""
        waiter.emit(SampleTaken(step=waiter.step, sample=sample, ends=ends))
        view = memory.view()
        answer = answer_of(goal, view, sample.t, ends)
        speaker.speak(goal, view, waiter.clock.monotonic() - began)
        if answer is not None:
            return answer
        if doubt is not None:
            doubt.look(view, sample.t)
        spent = waiter.clock.monotonic() - turn
        pause(waiter.clock, waiter.cancel, min(max(0.05, goal.every_s - spent), max(0.0, waiter.remaining_s())))


def answer_of(goal: Goal, view: Sequence[Sample], now: float, ends: str) -> Diagnosis | None:
    """What the goal says. Where the wait ends here it must say something; a suspicion alone makes it undecided."""
    answer = goal.judge(view, now, final=bool(ends))
    if ends and answer is None:
        raise AssertionError(f"{type(goal).__name__} gave no answer at the end of its time box")
    return ended_on_suspicion(answer) if answer is not None and ends == "suspect" else answer


def pause(clock: Clock, cancel: CancelToken, seconds: float) -> None:
    """Let time pass; raises Cancelled as soon as the run is interrupted."""
    if clock.wait(cancel.event, seconds):
        raise Cancelled("interrupted while waiting")


def _look(goal: Goal, waiter: Waiter) -> Sample:
    began = waiter.clock.monotonic()
    try:
        sample = goal.look()
    except Unreachable as problem:
        return Sample(t=waiter.clock.now(), host=waiter.target, host_t=0.0, boot_id="", link=Absent(f"{problem.stage}: {problem.summary}"))
    link = Seen(waiter.clock.monotonic() - began)
    return msgspec.structs.replace(sample, t=waiter.clock.now(), host=waiter.target, link=link)


class _Speaker:
    """Turns what a goal says of its movement into events: each new phase, of a rank too, at once; movement at most every 10 s."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._phase: str | None = None
        self._last = float("-inf")
        self._told = 0

    def speak(self, goal: Goal, view: list[Sample], elapsed_s: float) -> None:
        self._tell_ranks(goal, view[-1].server)
        phase, text = goal.moved(view)
        now = self._waiter.clock.monotonic()
        if phase and phase != self._phase:
            self._waiter.emit(PhaseReached(step=self._waiter.step, server=view[-1].server, phase=phase))
        elif now - self._last < SPEAK_S:
            return
        self._phase, self._last = phase, now
        box = elapsed_s + max(0.0, self._waiter.remaining_s())
        self._waiter.emit(Moved(step=self._waiter.step, host=self._waiter.target, phase=phase, text=text, elapsed_s=elapsed_s, box_s=box))

    def _tell_ranks(self, goal: Goal, server: str) -> None:
        if not isinstance(goal, TellsRanks):
            return
        known = goal.rank_phases()
        step = self._waiter.step
        for t, phase, label, rank, ended in known[self._told :]:
            self._waiter.emit(PhaseReached(t=t, step=step, server=server, phase=phase, label=label, rank=rank, ended=ended))
        self._told = len(known)
