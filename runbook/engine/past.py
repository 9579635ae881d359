"""What a journal says was done before its controller died: which steps have ended, and which attempts were in flight.

    begun ── end on record ──> ended: taken as it is, never run again
      └── no end, or `interrupted` ──> in flight: entered again, looked up on the host, or unknown, as its step type says

A step is over once a later one has begun. The last one of all may stand between two attempts or loop items, so the engine goes through
those again, with the ends that are on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from runbook.model.event import (
    ActionEnded,
    ActionStarted,
    AnyEvent,
    Found,
    Registered,
    RunSuspended,
    StepEnded,
    StepStarted,
    VarsSet,
)
from runbook.model.playbook import StepNode
from runbook.steps.base import Reentry


class Key(NamedTuple):
    """One attempt of a step on one target, of one loop item."""

    step: str
    host: str
    item: int | None
    attempt: int


class Flight(msgspec.Struct, kw_only=True):
    """An attempt without an end. `closed`: an end that says so is on record already."""

    start: StepStarted
    closed: bool = False
    actions: list[ActionStarted] = []
    registered: bool = False
    """A launch or a patch of it is on record: it existed before the controller died."""
    vars_set: bool = False

    @property
    def key(self) -> Key:
        """Whose attempt it is."""
        return _key(self.start)

    def reentry(self) -> Reentry:
        """The same for its step."""
        return Reentry(registered=self.registered, vars_set=self.vars_set, acted={one.action: one.detail for one in self.actions})


class Past:
    """Ends and flights of a journal; none for a run that has just begun. `order`: all steps in the playbook's order, that of time."""

    def __init__(
        self, events: Sequence[AnyEvent] = (), order: Sequence[StepNode] = (), redo: Sequence[str] = (), skip: Sequence[str] = ()
    ) -> None:
        self.redo, self.skip = frozenset(redo), frozenset(skip)
        self.flights: dict[Key, Flight] = {}
        self.open_actions: dict[str, ActionStarted] = {}
        """Acts without an end, by their id; those of the final cleanup too."""
        self.unknown: list[StepEnded] = []
        """Ends of this resume that say: it cannot be known whether this ran."""
        self.suspended: RunSuspended | None = None
        """The suspension in which the run was left."""
        self.found: set[tuple[str, str | None]] = set()
        self._ends: dict[Key, StepEnded] = {}
        self._unrun: dict[tuple[str, str], StepEnded] = {}
        self._place = {node.id: index for index, node in enumerate(order)}
        self._seen: set[str] = set()
        for event in events:
            self._take(event)
        self._last = max((self._place.get(step, -1) for step in self._seen), default=-1)

    # what the runner asks ----------------------------------------------------------------------------------------

    def entered(self, nodes: Sequence[StepNode]) -> bool:
        """Whether any of these steps has begun."""
        return any(node.id in self._seen for node in nodes)

    def beyond(self, nodes: Sequence[StepNode]) -> bool:
        """Whether a step that comes after all of these has begun."""
        return self._last > max((self._place.get(node.id, -1) for node in nodes), default=self._last)

    def unrun(self, step: str, host: str = "") -> StepEnded | None:
        """The end of a step that was decided without being begun: skipped, or a condition that cannot be known."""
        return self._unrun.get((step, host))

    def last(self, node: StepNode, host: str) -> StepEnded | None:
        """The last end of a step on a host, when the run had gone on from there."""
        ends = [end for key, end in self._ends.items() if (key.step, key.host) == (node.id, host)]
        return ends[-1] if ends and self.beyond([node]) else None

    def end(self, key: Key) -> StepEnded | None:
        """The end of an attempt."""
        return self._ends.get(key)

    def knows(self, key: Key) -> bool:
        """Whether an attempt has begun."""
        return key in self._ends or key in self.flights

    # the fold ----------------------------------------------------------------------------------------------------

    def _take(self, event: AnyEvent) -> None:
        match event:
            case StepStarted():
                self.suspended = None
                self._seen.add(event.step)
                self._ends.pop(_key(event), None)
                self._unrun.pop((event.step, ""), None)
                flight = self.flights.setdefault(_key(event), Flight(start=event))
                flight.closed = False
            case StepEnded():
                self._ended(event)
            case ActionEnded():
                self.open_actions.pop(event.id, None)
            case ActionStarted() | Registered() | VarsSet():
                self._acted(event)
            case RunSuspended():
                self.suspended = event
                self._reopen(event)
            case Found():
                self.found.add((event.finding.code, event.finding.step))
            case _:
                pass

    def _ended(self, event: StepEnded) -> None:
        self._seen.add(event.step)
        key = _key(event)
        flight = self.flights.get(key)
        if event.verdict == "interrupted":
            if flight is not None:
                flight.closed = True
            return
        if flight is None and key not in self._ends:
            self._unrun[event.step, event.host] = event
            return
        self.flights.pop(key, None)
        self._ends[key] = event

    def _acted(self, event: ActionStarted | Registered | VarsSet) -> None:
        if isinstance(event, ActionStarted):
            self.open_actions[event.id] = event
        for flight in self.flights.values():
            if flight.start.step != event.step or (not isinstance(event, VarsSet) and flight.start.host != event.host):
                continue
            match event:
                case ActionStarted():
                    flight.actions = [*flight.actions, event]
                case Registered():
                    flight.registered = True
                case VarsSet():
                    flight.vars_set = True

    def _reopen(self, event: RunSuspended) -> None:
        """What suspended the run goes on: its answer was that more time is needed, or more to see."""
        last: dict[tuple[str, int | None], Key] = {}
        for key in self._ends:
            last[key.host, key.item] = key if key.step == event.step else last.get((key.host, key.item), key)
        for key in [key for key in last.values() if key.step == event.step]:
            end = self._ends[key]
            if end.verdict in ("slow", "undecided"):
                del self._ends[key]
                start = StepStarted(step=key.step, type=end.type, host=key.host, item=key.item, attempt=key.attempt, part=end.part)
                self.flights[key] = Flight(start=start, closed=True)


def _key(event: StepStarted | StepEnded) -> Key:
    return Key(event.step, event.host, event.item, event.attempt)
