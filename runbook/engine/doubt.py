"""What a wait does while something looks like a hang: say so, look closer, and where the author wants it, end.

A suspicion is a state of a wait that goes on. It is no verdict, it stops nothing, and it may pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runbook.diagnose.suspicion import Suspicion, suspicion
from runbook.model.event import Event, Suspected, WaitBegan
from runbook.model.sample import Sample
from runbook.model.units import enc_hook
from runbook.model.verdict import CERTAIN_VERDICTS, Diagnosis, Finding
from runbook.steps.base import Judged

HARMLESS = frozenset({"full", "kernel"})
"""Looks that touch no process of the server."""


class Speaks(Protocol):
    """Where the wait tells what it sees."""

    step: str
    target: str

    def emit(self, event: Event) -> None:
        """Write an event."""
        ...


class Doubt:
    """Follows the suspicions of one wait. Its first event holds what is needed to judge the wait again."""

    def __init__(self, goal: Judged, waiter: Speaks) -> None:
        self._goal = goal
        self._waiter = waiter
        self._told: Suspicion | None = None
        self._asked = False
        plain = msgspec.to_builtins(goal.profile, enc_hook=enc_hook)
        waiter.emit(WaitBegan(step=waiter.step, host=waiter.target, question=goal.question(False), profile=plain))

    @property
    def text(self) -> str:
        """The suspicion that stands, for people; empty without one."""
        return self._told.text if self._told is not None else ""

    def look(self, view: Sequence[Sample], now: float) -> None:
        """Ask whether something is suspicious; want the looks that would decide."""
        question = self._goal.question(False)
        found = suspicion(self._goal.view(view, now))
        self._tell(found)
        if found is None:
            self._asked = False
            return
        looks = tuple(look for look in found.want if question.on_suspect != "continue" or look in HARMLESS)
        self._goal.want(looks)
        self._asked = True

    def is_enough(self) -> bool:
        """Whether the author wants the wait to end now: suspected, and all looks that were wanted have come."""
        return self._asked and self._goal.question(False).on_suspect == "fail" and not self._goal.inquiring()

    def _tell(self, found: Suspicion | None) -> None:
        before, self._told = self._told, found
        if (found.kind if found else "") == (before.kind if before else ""):
            return
        step, host = self._waiter.step, self._waiter.target
        if found is None:
            self._waiter.emit(Suspected(step=step, host=host, kind="", text="it moves again"))
        else:
            told = Suspected(step=step, host=host, kind=found.kind, text=found.text, since=found.since, want=found.want)
            self._waiter.emit(told)


def ended_on_suspicion(answer: Diagnosis) -> Diagnosis:
    """The answer of a wait that a suspicion ended: what is certain stands, all else is undecided."""
    if answer.verdict in CERTAIN_VERDICTS or answer.verdict == "passed":
        return answer
    note = Finding(code="ended_on_suspicion", text="the wait ended at the suspicion, as `on_suspect: fail` asks; its time box was not over")
    return msgspec.structs.replace(
        answer,
        verdict="undecided",
        kind=None,
        confidence=None,
        reason=f"ended as `on_suspect: fail` asks: {answer.reason}",
        findings=(*answer.findings, note),
    )
