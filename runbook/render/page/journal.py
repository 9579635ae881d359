"""The list of events at the end of the page: every event that is listed can be linked to. Bounded, and says what it leaves out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from runbook.model.event import (
    ActionEnded,
    ActionStarted,
    AnyEvent,
    EvidenceSaved,
    Found,
    HostConnected,
    Interrupted,
    MainEnded,
    Moved,
    Owed,
    PhaseReached,
    Registered,
    RunEnded,
    RunStarted,
    RunSuspended,
    SampleTaken,
    Settled,
    StepEnded,
    StepStarted,
    Suspected,
    VarsSet,
    WaitBegan,
    WaitEnded,
)
from runbook.model.sample import Absent, Sample, Seen
from runbook.model.units import format_duration, format_size
from runbook.render.lines import suspected_text
from runbook.render.page.markup import Markup, details, join, plain, prose, tag

FIRST = 200
LAST = 900
SAMPLES = 400
LINE = 260
LIST_BYTES = 260_000
Row = tuple[int, float, str, str]


class Listing:
    """Keeps the first events, the last ones, and the last samples apart, so that a long wait pushes nothing else out."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[AnyEvent] = []
        self._last: deque[AnyEvent] = deque(maxlen=LAST)
        self._samples: deque[AnyEvent] = deque(maxlen=SAMPLES)

    def apply(self, event: AnyEvent) -> None:
        """Take one event in."""
        self.count += 1
        if isinstance(event, SampleTaken):
            self._samples.append(event)
        elif len(self._first) < FIRST:
            self._first.append(event)
        else:
            self._last.append(event)

    def markup(self, origin: float, most: int = LIST_BYTES) -> Markup:
        """The list, folded, the newest events first to be kept when it is too long."""
        chosen = sorted([*self._first, *self._last, *self._samples], key=lambda event: event.n)
        rows: list[Markup] = []
        size = 0
        for event in reversed(chosen):
            row = _row(event, origin)
            size += len(row.encode())
            if size > most:
                break
            rows.append(row)
        listed = join(_with_gaps(chosen[len(chosen) - len(rows) :], rows[::-1], self.count))
        summary = f"{self.count:,} events" + (f", {len(rows):,} of them listed" if len(rows) < self.count else "")
        return details(summary, tag("ol", listed, class_="events")) if rows else Markup()


def _with_gaps(events: list[AnyEvent], rows: list[Markup], count: int) -> Iterator[Markup]:
    expected = 0
    for event, row in zip(events, rows, strict=True):
        if event.n > expected:
            many = f"{expected}–{event.n - 1}" if event.n - 1 > expected else str(expected)
            yield tag("li", "", "", tag("span", f"{many}: in events.jsonl only", class_="t"))
        expected = event.n + 1
        yield row


def _row(event: AnyEvent, origin: float) -> Markup:
    anchor = tag("a", f"#{event.n}", href=f"#e{event.n}")
    when = tag("span", f"+{format_duration(max(0.0, event.t - origin))}", class_="t")
    return tag("li", anchor, when, tag("span", prose(told(event), LINE)), id=f"e{event.n}")


def told(event: AnyEvent) -> str:
    """One event in a line."""
    match event:
        case StepStarted() | StepEnded():
            return _step(event)
        case ActionStarted() | ActionEnded():
            return _action(event)
        case SampleTaken():
            return f"`{event.step}` sample: {sampled(event.sample)}"
        case PhaseReached():
            who = "" if event.whole else f" {event.label or event.rank}"
            return f"`{event.step}` {event.server}{who}: phase `{event.phase}`{' ended' if event.ended else ''}"
        case Moved():
            return f"`{event.step}` {event.phase or ''} {event.text}"
        case Found():
            return f"finding `{event.finding.code}`: {event.finding.text}"
        case _:
            return _rare(event)


def _step(event: StepStarted | StepEnded) -> str:
    host = f" on {event.host}" if event.host else ""
    if isinstance(event, StepStarted):
        return f"step `{event.step}` ({event.type}){host} begins"
    kind = f"/{event.kind}" if event.kind else ""
    return f"step `{event.step}`{host}: {event.verdict or event.status}{kind} after {format_duration(event.seconds)}. {event.reason}"


def _action(event: ActionStarted | ActionEnded) -> str:
    how = "begins" if isinstance(event, ActionStarted) else "done" if event.ok else f"failed: {event.error}"
    return f"`{event.step}` {event.action} on {event.host} {how} {plain(event.detail)[: 2 * LINE] if event.detail else ''}"


def _rare(event: AnyEvent) -> str:
    match event:
        case RunStarted():
            return f"run {event.run} of `{event.playbook}` begins"
        case HostConnected():
            return f"connected to {event.host} ({event.address}) in {format_duration(event.seconds)}"
        case EvidenceSaved():
            return f"`{event.step}` saved `{event.file}`, {format_size(event.bytes)}: {event.about}"
        case WaitBegan():
            return f"`{event.step}` waits on {event.host}: {event.question.about}"
        case WaitEnded():
            return f"`{event.step}` waited on {event.host}: {event.verdict}{'/' + event.kind if event.kind else ''} by rule `{event.rule}`"
        case Suspected():
            return f"`{event.step}` on {event.host} {suspected_text(event)}"
        case Owed():
            return f"owed: {event.kind} `{event.id}`"
        case Settled():
            return f"settled: `{event.id}` {event.how}"
        case Registered():
            return f"`{event.step}` {event.kind} on {event.host} exists"
        case VarsSet():
            return f"`{event.step}` set {plain(event.values)[: 2 * LINE]}"
        case Interrupted():
            return f"interrupted by {event.by}"
        case MainEnded():
            return f"the main part ends: {event.verdict}"
        case RunSuspended() | RunEnded():
            word = "suspended" if isinstance(event, RunSuspended) else "ended"
            return f"run {word}: {event.verdict}, exit code {event.exit_code}. {event.reason}"
        case _:
            return type(event).__name__


def sampled(sample: Sample) -> str:
    """What a look brought, in a line."""
    parts = []
    if isinstance(sample.processes, Seen):
        odd = [f"{process.title[:40]} {process.state}" for process in sample.processes.value if process.state in "TtZX"]
        parts.append(f"{len(sample.processes.value)} processes" + (f" ({', '.join(odd[:4])})" if odd else ""))
    if isinstance(sample.exit, Seen):
        ended = sample.exit.value
        parts.append(f"ended {ended.signal or ended.code}")
    if isinstance(sample.log, Seen) and sample.log.value.lines:
        parts.append(f"{len(sample.log.value.lines)} log lines")
    if isinstance(sample.check, Seen):
        check = sample.check.value
        parts.append(f"check {check.status if check.outcome == 'answer' else check.outcome}")
    if isinstance(sample.gpus, Seen):
        parts.append("GPU " + ", ".join(format_size(gpu.used) for gpu in sample.gpus.value[:8]))
    if isinstance(sample.link, Absent):
        parts.append(f"host not reached: {sample.link.reason}")
    return ", ".join(parts) or "nothing new"
