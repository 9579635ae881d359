"""One fold that all renderers read: what happened, step by step, without any wording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from runbook.model.event import (
    ActionEnded,
    ActionStarted,
    AnyEvent,
    EvidenceSaved,
    Found,
    HostConnected,
    Interrupted,
    Moved,
    Owed,
    PhaseReached,
    Resumed,
    RunEnded,
    RunStarted,
    RunSuspended,
    SampleTaken,
    Settled,
    StepEnded,
    StepStarted,
)
from runbook.model.masked import marks
from runbook.model.sample import Seen
from runbook.model.verdict import Finding


class StepStory(msgspec.Struct, kw_only=True):
    """One attempt of a step on one target; `end` is null while it runs."""

    start: StepStarted | None
    end: StepEnded | None = None
    actions: list[tuple[ActionStarted, ActionEnded | None]] = []
    phases: list[PhaseReached] = []
    """Of the server and of each of its ranks."""
    moved: Moved | None = None


class Story(msgspec.Struct, kw_only=True):
    """A run as far as its events go."""

    header: RunStarted | None = None
    controller: dict[str, Any] = {}
    """Who goes on with the run: the newest one."""
    hosts: dict[str, HostConnected] = {}
    steps: list[StepStory] = []
    findings: list[Finding] = []
    evidence: list[EvidenceSaved] = []
    owed: dict[str, Owed] = {}
    interrupted: Interrupted | None = None
    suspended: RunSuspended | None = None
    ended: RunEnded | None = None
    masked: Counter[str] = msgspec.field(default_factory=Counter)
    """Marks that stand for secrets, by kind: wherever they stand, so one secret may count more than once."""
    last_t: float = 0.0

    @property
    def closing(self) -> RunEnded | RunSuspended | None:
        """The event that gives the verdict; null while the run goes on."""
        return self.ended or self.suspended

    @property
    def state(self) -> Literal["ended", "suspended", "running"]:
        """ended, suspended or running."""
        return "ended" if self.ended else "suspended" if self.suspended else "running"

    @property
    def masks(self) -> str:
        """What was masked, in words."""
        return ", ".join(f"{kind} ×{number}" for kind, number in sorted(self.masked.items()))

    def running(self) -> list[StepStory]:
        """Steps without an end."""
        return [step for step in self.steps if step.end is None]

    def deciding(self) -> StepStory | None:
        """The step that gave the verdict: the named one, else the last that did not pass. Of a run that was cancelled while it was
        suspended, the one that suspended it."""
        named = self.ended.failed_step if self.ended else None
        if self.suspended and not named and (self.ended is None or self.ended.verdict != "passed"):
            named = self.suspended.step
        ended = [step for step in self.steps if step.end is not None and step.end.verdict not in (None, "passed")]
        if named is not None:
            ended = [step for step in ended if step.end is not None and step.end.step == named]
        return ended[-1] if ended and (named or self.ended is None) else None

    def apply(self, event: AnyEvent) -> None:
        """Take one event in."""
        self.last_t = max(self.last_t, event.t)
        self._count_marks(event)
        match event:
            case StepStarted():
                self.steps.append(StepStory(start=event))
            case StepEnded():
                self._end(event)
            case ActionStarted() | ActionEnded() | PhaseReached() | Moved():
                self._inside(event)
            case Found():
                self.findings.append(event.finding)
            case EvidenceSaved():
                self.evidence.append(event)
            case Owed():
                self.owed[event.id] = event
            case Settled():
                self.owed.pop(event.id, None)
            case HostConnected():
                self.hosts[event.host] = event
            case RunStarted():
                self.header, self.controller = event, event.controller
            case Resumed():
                self.controller, self.suspended = event.controller, None
            case Interrupted():
                self.interrupted = event
            case RunSuspended():
                self.suspended = event
            case RunEnded():
                self.ended = event
            case _:
                pass  # samples are for judge and plots

    def _count_marks(self, event: AnyEvent) -> None:
        match event:
            case SampleTaken():
                log = event.sample.log
                shown = "\n".join(log.value.lines) if isinstance(log, Seen) and log.value.lines else ""
            case PhaseReached() | Moved():
                return  # what they tell stands in the samples too
            case _:
                shown = repr(event)
        if "***" in shown:
            self.masked += marks(shown)

    def _end(self, event: StepEnded) -> None:
        for step in reversed(self.steps):
            start = step.start
            if step.end is None and start is not None and (start.step, start.host, start.item) == (event.step, event.host, event.item):
                step.end = event
                return
        self.steps.append(StepStory(start=None, end=event))

    def _inside(self, event: ActionStarted | ActionEnded | PhaseReached | Moved) -> None:
        step = next((s for s in reversed(self.steps) if s.end is None and s.start is not None and s.start.step == event.step), None)
        if step is None:
            return  # an act of the final cleanup: the closing event lists what it left
        match event:
            case ActionStarted():
                step.actions.append((event, None))
            case ActionEnded():
                step.actions = [(start, event if start.id == event.id else end) for start, end in step.actions]
            case PhaseReached():
                step.phases.append(event)
            case Moved():
                step.moved = event


def tell(events: Iterable[AnyEvent]) -> Story:
    """The story of these events."""
    story = Story()
    for event in events:
        story.apply(event)
    return story
