"""The only loop that waits. A goal looks and judges; this owns the time box, the journal and Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runbook.engine.doubt import Doubt, ended_on_suspicion
from runbook.engine.memory import Memory
from runbook.engine.thread_rows import Packer
from runbook.hosts.base import Cancelled, CancelToken, Unreachable
from runbook.model.clock import Clock
from runbook.model.event import Event, Moved, PhaseReached, SampleTaken, WaitEnded
from runbook.model.sample import Absent, Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Goal, Judged, TellsRanks

SPEAK_S = 10.0
"""At most one `moved` event in this time."""
LONG_S, LONG_EVERY_S = 120.0, 5.0
"""In a wait that is longer than the first, what moved is asked only this often: a new phase may be told so much later."""


class Waiter(Protocol):
    """What the loop needs from the step's context."""

    clock: Clock
    cancel: CancelToken
    step: str
    target: str

    def remaining_s(self) -> float:
        """Seconds left in the time box."""
        ...

    def lost(self, why: Unreachable) -> bool:
        """A look saw no host; whether it is pointless to look again."""
        ...

    def emit(self, event: Event) -> None:
        """Write an event."""
        ...


def watch(goal: Goal, waiter: Waiter) -> Diagnosis:
    """Look until the goal is judged or the box ends; then the goal must answer. Raises Cancelled on Ctrl-C."""
    record = _Record(waiter)
    speaker = _Speaker(waiter)
    doubt = Doubt(goal, waiter) if isinstance(goal, Judged) else None
    began = waiter.clock.monotonic()
    try:
        while True:
            if waiter.cancel.is_set():
                raise Cancelled("interrupted while waiting")
            turn = waiter.clock.monotonic()
            sample, hopeless = _look(goal, waiter)
            view = record.take(sample)
            ends = (
                "box" if waiter.remaining_s() <= 0 else "link" if hopeless else "suspect" if doubt is not None and doubt.is_enough() else ""
            )
            answer = answer_of(goal, view, sample.t, ends)
            if answer is None and doubt is not None:
                doubt.look(view, sample.t)
            if not isinstance(sample.link, Absent):
                speaker.speak(goal, view, waiter.clock.monotonic() - began, doubt.text if doubt is not None else "")
            if answer is not None:
                record.end(answer, ends, sample.t)
                return answer
            spent = waiter.clock.monotonic() - turn
            pause(waiter.clock, waiter.cancel, min(max(0.05, goal.every_s - spent), max(0.0, waiter.remaining_s())))
    finally:
        record.close()


def answer_of(goal: Goal, view: Sequence[Sample], now: float, ends: str) -> Diagnosis | None:
    """What the goal says. Where the wait ends here it must say something; a suspicion alone makes it undecided.

    A look that saw no host decides nothing, also where a goal has a time of its own that is over by now: the wait goes on.
    """
    if not ends and isinstance(view[-1].link, Absent):
        return None
    answer = goal.judge(view, now, final=bool(ends))
    if ends and answer is None:
        raise AssertionError(f"{type(goal).__name__} gave no answer at the end of its time box")
    return ended_on_suspicion(answer) if answer is not None and ends == "suspect" else answer


class _Record:
    """What is remembered, and its way into the journal: each sample when it has settled, the rest when the wait ends."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._memory = Memory()
        self._packer = Packer()
        self._ended: WaitEnded | None = None

    def take(self, sample: Sample) -> list[Sample]:
        """Remember a sample; answers all that `judge` sees."""
        for settled in self._memory.add(sample):
            self._write(settled)
        return self._memory.view()

    def end(self, answer: Diagnosis, ends: str, now: float) -> None:
        """The wait's answer."""
        step, host = self._waiter.step, self._waiter.target
        self._ended = WaitEnded(step=step, host=host, verdict=answer.verdict, kind=answer.kind, rule=answer.rule, now=now, ends=ends)

    def close(self) -> None:
        """Write what the journal still lacks."""
        for sample in self._memory.rest():
            self._write(sample)
        if self._ended is not None:
            self._waiter.emit(self._ended)

    def _write(self, sample: Sample) -> None:
        packed, gone = self._packer.pack(sample)
        self._waiter.emit(SampleTaken(t=sample.t, step=self._waiter.step, sample=packed, gone=gone))


def pause(clock: Clock, cancel: CancelToken, seconds: float) -> None:
    """Let time pass; raises Cancelled as soon as the run is interrupted."""
    if clock.wait(cancel.event, seconds):
        raise Cancelled("interrupted while waiting")


def _look(goal: Goal, waiter: Waiter) -> tuple[Sample, bool]:
    """(what was seen, whether the host cannot be seen any more)."""
    began = waiter.clock.monotonic()
    try:
        sample = goal.look()
    except Unreachable as problem:
        absent = Absent(f"{problem.stage}: {problem.summary}")
        blind = Sample(t=waiter.clock.now(), host=waiter.target, host_t=0.0, boot_id="", link=absent)
        return blind, waiter.lost(problem)
    link = Seen(waiter.clock.monotonic() - began)
    return msgspec.structs.replace(sample, t=waiter.clock.now(), host=waiter.target, link=link), False


class _Speaker:
    """Turns what a goal says of its movement into events: each new phase, of a rank too, at once; movement at most every 10 s."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._phase: str | None = None
        self._last = self._asked = float("-inf")
        self._told = 0

    def speak(self, goal: Goal, view: list[Sample], elapsed_s: float, doubt: str) -> None:
        self._tell_ranks(goal, view[-1].server)
        now = self._waiter.clock.monotonic()
        if elapsed_s > LONG_S and now - self._asked < LONG_EVERY_S:
            return
        self._asked = now
        phase, text = goal.moved(view)
        text = f"suspicious: {doubt}; {text}" if doubt else text
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
