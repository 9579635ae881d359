"""Lanes against time: phases of a server and of each of its ranks, the steps that ran, what the health check brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from runbook.model.units import format_duration
from runbook.render.page.axis import WIDTH, Axis
from runbook.render.page.curves import Span
from runbook.render.page.markup import Markup, join, tag, text
from runbook.render.page.observed import Lane, Server

HEIGHT = 20.0
COLOURS = 8
LABEL_UNITS = 6.0
"""Least width of a letter in a lane, in a thousandth of the figure."""
NOTED_S = 5.0
"""A state that ordinary work has, too (a wait for the disk), is drawn when it lasted this long."""


class Palette:
    """A colour for each phase, in the order of its first appearance."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, phase: str) -> str:
        """The class of a phase."""
        return f"p{self._known.setdefault(phase, len(self._known)) % COLOURS}"


class LaneRow(NamedTuple):
    """A lane as it is drawn. `odd`: the verdict names it; `note` stands at its right."""

    name: str
    spans: Sequence[Span]
    states: Sequence[Span] = ()
    gone: float | None = None
    odd: bool = False
    note: str = ""
    alive_from: float | None = None


def rank_rows(server: Server, culprit: int | None, end: float) -> Iterator[LaneRow]:
    """The lanes of a server's ranks, by rank."""
    for lane in sorted(server.lanes.values(), key=lambda lane: (lane.rank is None, lane.rank or 0, lane.name)):
        states = [span for span in lane.states if span.name and (span.name != "disk wait" or (span.end or end) - span.begin >= NOTED_S)]
        seen = lane.states[0].begin if lane.states else None
        odd = culprit is not None and lane.rank == culprit
        yield LaneRow(lane.name, lane.phases, states, lane.gone, odd, _note(lane, states, end), seen)


def _note(lane: Lane, states: Sequence[Span], end: float) -> str:
    if lane.gone is not None:
        return "gone"
    if states and states[-1].end is None:
        return f"{states[-1].name} for {format_duration(end - states[-1].begin)}"
    if not lane.phases:
        return ""
    last = lane.phases[-1]
    return f"{last.name} for {format_duration(end - last.begin)}" if last.end is None else f"{last.name} done"


def draw(row: LaneRow, axis: Axis, palette: Palette) -> Markup:
    """The picture of a lane: coloured spans with their names, odd states hatched over them."""
    ended = row.gone if row.gone is not None else axis.end
    shapes = [axis.ground(HEIGHT)]
    labels: list[Markup] = []
    if row.alive_from is not None:
        shapes.append(_rect(axis, row.alive_from, ended, "alive"))
    for span in row.spans:
        until = span.end if span.end is not None else ended
        if until < axis.begin or span.begin > axis.end:
            continue
        shapes.append(_rect(axis, span.begin, until, span.tone or palette.of(span.name)))
        hidden = min((state.begin for state in row.states if state.begin > span.begin), default=until)
        labels += _label(axis, span.begin, min(until, hidden), span.name)
    for span in row.states:
        shapes.append(_rect(axis, span.begin, span.end or ended, "state"))
        labels += _label(axis, span.begin, span.end or ended, span.name, "state")
    if row.gone is not None:
        x = axis.x(row.gone)
        shapes.append(tag("line", x1=x, x2=x, y1=0, y2=HEIGHT, class_="gone"))
    picture = tag(
        "svg", *shapes, viewBox=f"0 0 1000 {HEIGHT:g}", preserveAspectRatio="none", role="img", aria_label=spoken(row, axis), class_="lane"
    )
    return join([picture, *labels])


def _rect(axis: Axis, begin: float, end: float, class_: str) -> Markup:
    x = axis.x(begin)
    return tag("rect", x=x, y=2, width=max(1.0, round(axis.x(end) - x, 1)), height=HEIGHT - 4, class_=class_)


def _label(axis: Axis, begin: float, end: float, name: str, class_: str = "") -> list[Markup]:
    """The name inside its span; the style sheet hides one for which a narrow page has no room."""
    x, room = axis.x(begin), axis.x(end) - axis.x(begin)
    if room < LABEL_UNITS * len(name):
        return []
    style = f"left:{x * 100 / WIDTH:.2f}%;width:{room * 100 / WIDTH:.2f}%"
    return [tag("span", tag("b", text(name, 200)), class_=f"name {class_}".strip(), style=style, aria_hidden="true")]


def spoken(row: LaneRow, axis: Axis) -> str:
    """The lane in words."""
    parts = [f"{span.name} from {format_duration(max(0.0, span.begin - axis.origin))}" for span in [*row.spans, *row.states][:40]]
    return f"{row.name}: " + (", ".join(parts) or "no phase was read") + (f"; {row.note}" if row.note else "")


def legend(phases: Iterable[str], palette: Palette) -> Markup:
    """The colours and their phases, and what the bars mean."""
    entries = [(palette.of(name), text(name, 100)) for name in phases]
    entries.append(("moved", Markup("it moved: high bar clearly, low bar a little")))
    return tag("ul", *(tag("li", tag("i", class_=class_, aria_hidden="true"), name) for class_, name in entries), class_="legend")
