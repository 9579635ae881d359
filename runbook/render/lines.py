"""Plain lines for pipes, CI and log files: one line an event that people care about, readable without colour."""

from __future__ import annotations

from runbook.model.event import (
    ActionEnded,
    AnyEvent,
    Found,
    HostConnected,
    Interrupted,
    Moved,
    PhaseReached,
    Resumed,
    RunEnded,
    RunStarted,
    RunSuspended,
    StepEnded,
    StepStarted,
    Suspected,
)
from runbook.model.units import format_duration
from runbook.render.diagnostics import visible
from runbook.render.story import Story

LONGEST = 4_000
"""Characters of a line; the whole of a longer one stands in the journal."""
MARKS = {"passed": "ok", "failed": "FAILED", "unknown": "UNKNOWN", "skipped": "skipped"}


class Lines:
    """Turns events into lines. `quiet` is how long nothing was printed; the caller owns the clock."""

    def __init__(self) -> None:
        self.story = Story()

    def lines(self, event: AnyEvent) -> list[str]:
        """The lines for one event; most events have none. Text from a host cannot steer the terminal."""
        return [visible(line if len(line) <= LONGEST else line[:LONGEST] + "…") for line in self._lines(event)]

    def _lines(self, event: AnyEvent) -> list[str]:
        self.story.apply(event)
        match event:
            case RunStarted():
                return [f"run {event.run}: {event.name or event.playbook}"]
            case HostConnected():
                who = f"as {event.facts.get('user')} (python {event.facts.get('python_version')})"
                return [f"  {event.host}: connected in {format_duration(event.seconds)} {who}"]
            case StepStarted(type="set" | "assert"):
                return []
            case StepStarted():
                return [f"> {event.step}{_title(event.name)}{_on(event.host)}{_attempt(event)}"]
            case PhaseReached():
                return [f"  {event.step}: phase {event.phase}"] if event.whole else []
            case Moved():
                return [f"  {event.step}: {moved_text(event)}"]
            case Suspected():
                return [f"  {event.step}: {suspected_text(event)}"]
            case Found():
                return [f"  note ({event.finding.code}): {event.finding.text}"]
            case StepEnded():
                return _ended(event)
            case ActionEnded(action="collect", ok=True):
                return [f"  {event.step}: evidence taken: {event.detail.get('items', '')} ({event.detail.get('index', '')})"]
            case Interrupted():
                again = " (a second one leaves at once)" if event.by in ("SIGINT", "SIGTERM") else ""
                return [f"{event.by}: stopping and cleaning up{again}"]
            case Resumed():
                flying = f"; in flight: {', '.join(event.in_flight)}" if event.in_flight else ""
                return [f"resumed by pid {event.controller.get('pid')} on {event.controller.get('host')}{flying}"]
            case RunSuspended() | RunEnded():
                return closing_lines(event)
            case _:
                return []

    def heartbeat(self, now: float) -> str:
        """A line for a silence: what is running, and since when. `now` is unix seconds."""
        running = [step for step in self.story.running() if step.start is not None]
        if not running or running[0].start is None:
            return "  working"
        start, moved = running[0].start, running[0].moved
        box = f" of {format_duration(start.box_s)}" if start.box_s not in (None, float("inf")) else ""
        what = f"; {moved.text}" if moved else ""
        return visible(f"  {start.step}: running for {format_duration(now - start.t)}{box}{what}")


def moved_text(event: Moved) -> str:
    """Phase, elapsed time and box, what moved last."""
    box = f" of {format_duration(event.box_s)}" if event.box_s else ""
    phase = f"{event.phase}, " if event.phase else ""
    return f"{phase}{format_duration(event.elapsed_s)}{box}" + (f": {event.text}" if event.text else "")


def suspected_text(event: Suspected) -> str:
    """What looks like a hang, which is no verdict, and how it is looked into."""
    if not event.kind:
        return f"no longer suspicious: {event.text}"
    looks = f"; looking closer: {', '.join(event.want)}" if event.want else ""
    return f"suspicious, perhaps {event.kind}: {event.text}{looks}"


def _ended(event: StepEnded) -> list[str]:
    word = MARKS[event.status]
    verdict = f" {event.verdict}{'/' + event.kind if event.kind else ''}" if event.verdict not in (None, "passed", "failed") else ""
    ignored = " (ignored)" if event.ignored else ""
    reason = f"  {event.reason}" if event.reason else ""
    return [f"{word}{verdict}{ignored} {event.step}{_on(event.host)} {format_duration(event.seconds)}{reason}"]


def closing_lines(event: RunEnded | RunSuspended) -> list[str]:
    """The end: verdict, reason, what is left, what to do next."""
    kind = f"/{event.kind}" if event.kind else ""
    if isinstance(event, RunSuspended):
        lines = ["", f"SUSPENDED {event.verdict}{kind} (exit {event.exit_code}): {event.reason}"]
    else:
        lines = ["", f"{event.verdict.upper()}{kind} (exit {event.exit_code}): {event.reason}"]
        if event.cleanup != "none":
            lines.append(f"cleanup: {event.cleanup}")
    lines += [f"left behind: {line}" for line in event.left_behind]
    lines += [f"next: {line}" for line in event.next]
    return lines


def _title(name: str) -> str:
    return f" – {name}" if name else ""


def _on(host: str) -> str:
    return f" [{host}]" if host else ""


def _attempt(event: StepStarted) -> str:
    item = f" item {event.item + 1}" if event.item is not None else ""
    return item + (f" attempt {event.attempt}" if event.attempt > 1 else "")
