"""The run as a Chrome trace, which Perfetto and chrome://tracing open: a process for each host, a thread for steps and for each rank.

Complete events (X) of one thread always nest: a span that would overlap goes to a thread of its own. Times are microseconds on the
controller's clock, and events stand in their order. Counters (C) are what moved, instants (i) what happened at a moment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from runbook.model.event import (
    ActionEnded,
    ActionStarted,
    AnyEvent,
    EvidenceSaved,
    Found,
    Interrupted,
    PhaseReached,
    RunEnded,
    RunSuspended,
    SampleTaken,
    StepStarted,
)
from runbook.model.sample import Seen
from runbook.render.inert import one_line
from runbook.render.phases import phase_spans
from runbook.render.series import series
from runbook.render.story import StepStory, Story, tell

LONGEST = 500
LATEST_S = 4e9
"""A time beyond the year 2096 is no time: it is put there, so that all numbers stay exact."""
CONTROLLER = "controller"


class Span(NamedTuple):
    """A stretch of time on a lane of a host."""

    host: str
    lane: str
    name: str
    kind: str
    begin: int
    end: int
    args: dict[str, Any]


class Instant(NamedTuple):
    """A moment; an empty host is the whole run."""

    host: str
    name: str
    kind: str
    ts: int
    args: dict[str, Any]


def trace(events: Iterable[AnyEvent]) -> str:
    """The JSON object: `traceEvents`, `displayTimeUnit`, `otherData`."""
    seen = list(events)
    story = tell(seen)
    lanes = _Lanes()
    timed = [lanes.complete(span) for span in sorted(_spans(seen, story), key=lambda span: (span.begin, -span.end))]
    timed += [lanes.instant(instant) for instant in _instants(seen, story)]
    for curve in series(seen):
        pid = lanes.host(curve.host)
        name = one_line(curve.name + (" (total)" if curve.total else ""), LONGEST)
        timed += [
            {"ph": "C", "pid": pid, "tid": 0, "ts": _us(point.t), "name": name, "args": {curve.unit: _number(point.value)}}
            for point in curve.points
        ]
    document = {
        "displayTimeUnit": "ms",
        "otherData": _about(story),
        "traceEvents": [*lanes.names(), *sorted(timed, key=lambda event: event["ts"])],
    }
    return json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n"


class _Lanes:
    """Gives hosts their pid and lanes their tid, and a span that would overlap a lane of its own."""

    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], list[int]] = {}

    def host(self, name: str) -> int:
        return self._hosts.setdefault(name or CONTROLLER, len(self._hosts) + 1)

    def _lane(self, host: str, name: str) -> int:
        self.host(host)
        return self._lanes.setdefault((host or CONTROLLER, name), len(self._lanes) + 1)

    def complete(self, span: Span) -> dict[str, Any]:
        """Spans come by begin, longest first: so a span fits where it ends before the innermost open one does."""
        number, name = 1, span.lane
        while not self._fits(span, name):
            number += 1
            name = f"{span.lane} ({number})"
        tid, pid = self._lane(span.host, name), self.host(span.host)
        duration = span.end - span.begin
        return {
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "ts": span.begin,
            "dur": duration,
            "name": one_line(span.name, LONGEST),
            "cat": span.kind,
            "args": _args(span.args),
        }

    def _fits(self, span: Span, lane: str) -> bool:
        ends = self._open.setdefault((span.host or CONTROLLER, lane), [])
        while ends and ends[-1] <= span.begin:
            ends.pop()
        if ends and ends[-1] < span.end:
            return False
        ends.append(span.end)
        return True

    def instant(self, instant: Instant) -> dict[str, Any]:
        scope = {"s": "p", "pid": self.host(instant.host), "tid": 0}
        what = {"name": one_line(instant.name, LONGEST), "cat": instant.kind, "args": _args(instant.args)}
        return {"ph": "i", **scope, "ts": instant.ts, **what}

    def names(self) -> list[dict[str, Any]]:
        """The metadata events, first in the file."""
        hosts = [("process_name", pid, 0, name) for name, pid in self._hosts.items()]
        threads = [("thread_name", self._hosts[host], tid, name) for (host, name), tid in self._lanes.items()]
        return [
            {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": kind, "args": {"name": one_line(name, LONGEST)}}
            for kind, pid, tid, name in [*hosts, *threads]
        ]


def _spans(events: list[AnyEvent], story: Story) -> list[Span]:
    spans = [span for step in story.steps if (span := _step(step, story.last_t)) is not None]
    return [*spans, *_actions(events, story.last_t), *_phases(story)]


def _step(step: StepStory, last_t: float) -> Span | None:
    event = step.end or step.start
    if event is None:
        return None
    begin = step.start.t if step.start else event.t - step.end.seconds if step.end else event.t
    end = step.end.t if step.end else last_t
    args: dict[str, Any] = {"type": event.type}
    if step.end:
        args |= {"verdict": step.end.verdict, "kind": step.end.kind, "reason": step.end.reason, "part": step.end.part}
    else:
        args["unfinished"] = True
    return Span(event.host, "steps", event.step, "step", _us(begin), max(_us(begin), _us(end)), args)


def _actions(events: list[AnyEvent], last_t: float) -> list[Span]:
    """Acts on hosts; one without its end lasts to the end of the journal."""
    begun: dict[str, ActionStarted] = {}
    spans = []
    for event in events:
        if isinstance(event, ActionStarted):
            begun[event.id] = event
        elif isinstance(event, ActionEnded) and event.id in begun:
            start = begun.pop(event.id)
            spans.append(_action(start, event.t, {"ok": event.ok, "error": event.error or None, **event.detail}))
    return [*spans, *(_action(start, last_t, {"unfinished": True}) for start in begun.values())]


def _action(start: ActionStarted, end: float, args: dict[str, Any]) -> Span:
    return Span(start.host, "steps", start.action, "action", _us(start.t), max(_us(start.t), _us(end)), args)


def _phases(story: Story) -> list[Span]:
    spans = []
    for step in story.steps:
        host = step.start.host if step.start else ""
        for phase, end, lane in ((span.phase, span.end, span.lane) for span in phase_spans(step, story.last_t)):
            spans.append(Span(host, lane, phase.phase, "phase", _us(phase.t), _us(end), _line(phase)))
    return spans


def _line(phase: PhaseReached) -> dict[str, Any]:
    return {"line": phase.line} if phase.line else {}


def _instants(events: list[AnyEvent], story: Story) -> list[Instant]:
    found = []
    outcome: dict[tuple[str, str], str] = {}
    hosts: dict[str, str] = {}
    for event in events:
        match event:
            case RunEnded() | RunSuspended():
                word = f"{event.verdict}{'/' + event.kind if event.kind else ''}"
                found.append(Instant("", word, "verdict", _us(event.t), {"reason": event.reason, "exit_code": event.exit_code}))
            case Interrupted():
                found.append(Instant("", event.by, "interrupted", _us(event.t), {}))
            case Found():
                host, at = hosts.get(event.finding.step or "", ""), _us(event.t or story.last_t)
                found.append(Instant(host, event.finding.code, "finding", at, {"text": event.finding.text}))
            case EvidenceSaved():
                found.append(Instant(hosts.get(event.step, ""), event.file, "evidence", _us(event.t), {"bytes": event.bytes}))
            case StepStarted():
                hosts[event.step] = event.host
            case SampleTaken() if isinstance(event.sample.check, Seen):
                check = event.sample.check.value
                now = f"{check.status}" if check.outcome == "answer" else check.outcome
                key = (event.sample.host, event.sample.server)
                if outcome.get(key) != now:
                    outcome[key] = now
                    args = {"url": check.url, "body_bytes": check.body_bytes, "matched": check.matched}
                    found.append(Instant(event.sample.host, f"check: {now}", "check", _us(event.t), args))
            case _:
                pass  # all else is a span, a counter, or says nothing about time
    return found


def _us(t: float) -> int:
    return int(min(max(t, 0.0), LATEST_S) * 1e6) if math.isfinite(t) else 0


def _number(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _args(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values, bounded and inert; nulls are left out."""
    return {
        one_line(name, 100): value if isinstance(value, (bool, int)) and abs(value) < 2**53 else one_line(value, LONGEST)
        for name, value in values.items()
        if value is not None
    }


def _about(story: Story) -> dict[str, str]:
    header, closing = story.header, story.closing
    found: dict[str, str] = {"state": story.state}
    if header:
        found |= {"run": header.run, "playbook": header.name or header.playbook, "runbook": header.version}
    if closing:
        found |= {"verdict": closing.verdict, "kind": closing.kind or "", "reason": closing.reason}
    return {name: one_line(value, LONGEST) for name, value in found.items()}
