"""What a run knows: a pure fold over its events. The live engine and `cancel` of a suspended run use the same one."""

from __future__ import annotations

from typing import Any

import msgspec

from runbook.hosts.base import Mark
from runbook.model.event import (
    AnyEvent,
    HostConnected,
    Interrupted,
    MainEnded,
    Owed,
    Registered,
    Resumed,
    RunEnded,
    RunStarted,
    RunSuspended,
    SampleTaken,
    Settled,
    StepEnded,
    StepStarted,
    VarsSet,
)
from runbook.model.sample import Seen
from runbook.model.units import dec_hook
from runbook.steps.base import Launched, Patched


class StepRecord(msgspec.Struct, kw_only=True):
    """All ends of one step: by target, then by attempt and loop item, in the order of time."""

    id: str
    type: str
    ends: list[StepEnded] = []
    starts: dict[str, StepStarted] = {}
    targets: tuple[str, ...] = ()


class MarkNote(msgspec.Struct, frozen=True):
    """Where a host's logs stood at a moment."""

    t: float
    host: str
    marks: dict[str, Mark]


class RunState:
    """Results, debts and places of a run so far."""

    def __init__(self) -> None:
        self.header: RunStarted | None = None
        self.controller: dict[str, Any] = {}
        """Who goes on with the run: the newest one."""
        self.interrupted: Interrupted | None = None
        self.steps: dict[str, StepRecord] = {}
        self.launches: dict[tuple[str, str], Launched] = {}
        self.patches: dict[tuple[str, str], Patched] = {}
        self.owed: dict[str, Owed] = {}
        self.settled: dict[str, str] = {}
        self.heirs: dict[str, None] = {}
        """Runs that took over what this one kept, in the order of time."""
        self.vars_set: dict[str, dict[str, Any]] = {}
        """What `set` steps changed, by the prefix of their file's ids."""
        self.marks: list[MarkNote] = []
        self.hosts: dict[str, HostConnected] = {}
        self.gpus: dict[str, tuple[str, ...]] = {}
        """The name of each GPU of a host, as last seen."""
        self.main: MainEnded | None = None
        self.suspended: RunSuspended | None = None
        self.ended: RunEnded | None = None

    def apply(self, event: AnyEvent) -> None:
        """Take one event in."""
        match event:
            case StepStarted():
                self._started(event)
            case StepEnded():
                self._ended(event)
            case Registered(kind="launch"):
                self.launches[event.step, event.host] = msgspec.convert(event.data, Launched, dec_hook=dec_hook)
            case Registered(kind="patch"):
                self.patches[event.step, event.host] = msgspec.convert(event.data, Patched)
            case Owed():
                self.owed[event.id] = event
            case Settled():
                self.settled[event.id] = event.how
                if event.by:
                    self.heirs[event.by] = None
                self.owed.pop(event.id, None)
            case VarsSet():
                head, dot, _ = event.step.rpartition(".")
                self.vars_set.setdefault(head + dot, {}).update(event.values)
            case HostConnected():
                self.hosts[event.host] = event
            case SampleTaken() if isinstance(event.sample.gpus, Seen):
                self.gpus[event.sample.host] = tuple(gpu.name for gpu in event.sample.gpus.value)
            case RunStarted() | Resumed() | Interrupted() | MainEnded() | RunSuspended() | RunEnded():
                self._went_on(event)
            case _:
                pass  # observations and progress change nothing that later steps can refer to

    def _went_on(self, event: RunStarted | Resumed | Interrupted | MainEnded | RunSuspended | RunEnded) -> None:
        match event:
            case RunStarted():
                self.header, self.controller = event, event.controller
            case Resumed():
                self.controller, self.suspended = event.controller, None
            case Interrupted():
                self.interrupted = event
            case MainEnded():
                self.main = event
            case RunSuspended():
                self.suspended = event
            case RunEnded():
                self.ended, self.suspended = event, None

    def _started(self, event: StepStarted) -> None:
        record = self.steps.setdefault(event.step, StepRecord(id=event.step, type=event.type))
        if event.attempt == 1 and not event.item and event.host in record.starts:
            record.ends = [end for end in record.ends if end.host != event.host]
        again = (event.host, event.item, event.attempt)  # entered again after a resume
        record.ends = [end for end in record.ends if (end.host, end.item, end.attempt) != again]
        record.starts[event.host] = event
        self._note(event.t, event.host, event.marks)

    def _ended(self, event: StepEnded) -> None:
        record = self.steps.setdefault(event.step, StepRecord(id=event.step, type=event.type))
        record.ends.append(event)
        if event.host not in record.targets:
            record.targets = (*record.targets, event.host)
        self._note(event.t, event.host, event.marks)

    def _note(self, t: float, host: str, marks: dict[str, Any]) -> None:
        if marks:
            self.marks.append(MarkNote(t, host, msgspec.convert(marks, dict[str, Mark])))

    def marks_at(self, host: str, t: float) -> dict[str, Mark]:
        """The first note of each log taken on that host at or after `t`."""
        found: dict[str, Mark] = {}
        for note in self.marks:
            if note.host == host and note.t >= t:
                for path, mark in note.marks.items():
                    found.setdefault(path, mark)
        return found


def keeper_run(debt: Owed, own: str) -> str:
    """The run whose keeper and records a debt is about: this run's, or the one that it was taken over from."""
    return str(debt.detail.get("run") or own)


def fold(events: list[AnyEvent]) -> RunState:
    """The state after these events."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
