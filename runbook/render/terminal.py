"""The live terminal: finished steps scroll by, the running ones stay at the bottom with phase, time box and what moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from runbook.model.event import AnyEvent, Interrupted, Moved, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.model.units import format_duration
from runbook.render.diagnostics import visible
from runbook.render.lines import Lines, closing_lines
from runbook.render.story import StepStory

STYLES = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "unknown": ("?", "bold yellow"), "skipped": ("–", "dim")}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST_PART = 60
"""Longer values of an assertion's parts, whole lists of hits among them, stand in the transcript only."""
MOST_PARTS = 4
LONGEST_REASON = 400


class Terminal:
    """Follows a run on a terminal. `refresh` redraws with the time that the caller's clock gives."""

    def __init__(self, stream: IO[str], *, colour: bool = True, record: bool = False) -> None:
        self.console = Console(file=stream, no_color=not colour, record=record, highlight=False)
        self._lines = Lines()
        self._live = Live(Text(""), console=self.console, auto_refresh=False, transient=True)

    def start(self) -> None:
        """Take the bottom of the screen."""
        self._live.start()

    def stop(self) -> None:
        """Give the screen back."""
        self._live.stop()

    def follow(self, event: AnyEvent) -> None:
        """Print what is finished."""
        plain = self._lines.lines(event)
        match event:
            case StepStarted() | Moved():
                return  # the running rows show both
            case StepEnded():
                self.console.print(ended_line(event, self._label(event)))
            case RunEnded() | RunSuspended():
                self.stop()
                self.console.print(closing(event))
            case Interrupted():
                self.console.print(Text("\n".join(plain), style="bold yellow"))
            case _:
                for line in plain:
                    self.console.print(Text(line, style="dim"))

    def take_in(self, event: AnyEvent) -> None:
        """Know of it without printing anything."""
        self._lines.lines(event)

    def _label(self, event: StepEnded) -> str:
        """What stands before the reason: the target where a run has several, and the step's line for people."""
        starts = (step.start for step in reversed(self._lines.story.steps) if step.end is event and step.start is not None)
        name = next((start.name for start in starts), "")
        header = self._lines.story.header
        several = header is not None and len({target["target"] for role in header.targets.values() for target in role}) > 1
        return (f"[{event.host}] " if several and event.host else "") + (f"{name}: " if name else "")

    def refresh(self, now: float) -> None:
        """Redraw the running steps. `now` is unix seconds."""
        rows = [running_line(step, now) for step in self._lines.story.running()]
        self._live.update(Group(*rows), refresh=True)


def ended_line(event: StepEnded, label: str = "") -> RenderableType:
    """Mark, step, time, label and reason; of an assertion each claim that does not hold."""
    mark, style = STYLES[event.status]
    table = Table.grid(padding=(0, 1))
    for width in (1, 18, 7):
        table.add_column(min_width=width, no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    verdict = f"{event.verdict}{'/' + event.kind if event.kind else ''}: " if event.verdict not in (None, "passed") else ""
    claims = event.result.get("claims") or []
    open_claims = [claim for claim in claims if claim["outcome"] != "true"] if event.type == "assert" else []
    word = "do not hold" if event.status == "failed" else "are not sure to hold"
    reason = f"{len(open_claims)} of {len(claims)} {word}" if open_claims else event.reason
    table.add_row(
        Text(mark, style),
        Text(event.step, "bold" if event.status != "passed" else ""),
        Text(format_duration(event.seconds), "dim"),
        Text.assemble((verdict, style), label, visible(reason)),
    )
    for claim in open_claims:
        for line in claim_lines(claim):
            table.add_row("", "", "", line)
    return table


def claim_lines(claim: dict[str, Any]) -> Iterator[Text]:
    """A claim that does not hold: itself, what it saw, why it matters."""
    yield Text.assemble((claim["that"], "bold"), (visible(f"  {claim['note']}") if claim["note"] else "", ""))
    short = [visible(f"{part['source']} = {part['value']}") for part in claim["parts"] if len(part["value"]) <= LONGEST_PART]
    if short:
        yield Text(", ".join([*short[:MOST_PARTS], *(["…"] if len(short) > MOST_PARTS else [])]), "yellow")
    if claim["because"]:
        yield Text(claim["because"], "dim")


def running_line(step: StepStory, now: float) -> RenderableType:
    """Spinner, step, phase, elapsed of box, what moved last."""
    start = step.start
    if start is None:
        return Text("")
    box = f" of {format_duration(start.box_s)}" if start.box_s is not None and start.box_s != float("inf") else ""
    moved = step.moved
    phase = f" {moved.phase}" if moved and moved.phase else ""
    return Text.assemble(
        f"{SPINNER[int(now * 8) % len(SPINNER)]} ",
        (f"{start.step}", "bold"),
        f"  {start.name}" if start.name else "",
        (phase, "cyan"),
        (f"  {format_duration(now - start.t)}{box}", "dim"),
        (visible(f"  {moved.text}") if moved and moved.text else "", "cyan"),
    )


def closing(event: RunEnded | RunSuspended) -> RenderableType:
    """The verdict in colour, then the rest as in plain lines."""
    style = "bold green" if event.verdict == "passed" else "bold red" if event.exit_code in (1, 3, 5, 7, 8, 70) else "bold yellow"
    lines = [visible(line) for line in closing_lines(event) if line]
    if len(lines[0]) > LONGEST_REASON:
        lines[0] = lines[0][:LONGEST_REASON] + "…"
    return Group(Text(""), Text(lines[0], style), *(Text(line) for line in lines[1:]))
