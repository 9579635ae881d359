"""Where time went: lanes and plots on one axis, so that hang or slow is seen in one look; the same as tables for who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runbook.model.event import MainEnded
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis
from runbook.render.page import lanes, plots
from runbook.render.page.axis import Axis
from runbook.render.page.clock import at
from runbook.render.page.curves import Curve, Span
from runbook.render.page.lanes import LaneRow, Palette
from runbook.render.page.markup import Markup, details, join, prose, table, tag, text
from runbook.render.page.observed import GPU, Observed, Server
from runbook.render.story import Story

STILL = frozenset({"hung", "undecided"})
"""Verdicts of a wait in which nothing moved at the end."""
MOST_SERVERS = 4
MOST_LANES = 64
MOST_STEPS = 120
TABLE_TIMES = 8
TABLE_LINES = 40


class Timeline:
    """The figure of a run. It has none when nothing was observed."""

    def __init__(self, story: Story, observed: Observed, main: MainEnded | None) -> None:
        self.story = story
        deciding = story.deciding()
        self.diagnosis: Diagnosis | None = deciding.end.diagnosis if deciding and deciding.end else None
        self.servers = list(observed.servers.values())
        self.gpus = observed.gpus
        self.axis = self._axis(observed, main)

    def _axis(self, observed: Observed, main: MainEnded | None) -> Axis | None:
        """From the first launch (else the first look) to the end of the main part; cleanup tells nothing about the server."""
        launches = [server.launched for server in self.servers if server.launched is not None]
        if not launches and not observed.t:
            return None
        begin = min(launches) if launches else observed.t[0]
        deciding = self.story.deciding()
        ends = [main.t if main else self.story.last_t, observed.t[-1] if observed.t else 0.0]
        end = deciding.end.t if deciding and deciding.end and deciding.end.t > begin else max(ends)
        quiet = self.diagnosis.quiet_s if self.diagnosis and self.diagnosis.verdict in STILL else None
        return Axis(begin, max(end, begin), stall=end - quiet if quiet else None)

    def whole(self) -> Markup:
        """Lanes, plots, and both as tables."""
        return self._figure(plotted=True, tables=True)

    def coarse(self) -> Markup:
        """The same with fewer points and without tables."""
        return self._figure(plotted=True, tables=False, grain=4.0)

    def only_lanes(self) -> Markup:
        """Without the plots."""
        return self._figure(plotted=False, tables=False)

    def _figure(self, *, plotted: bool, tables: bool, grain: float = 1.0) -> Markup:
        axis = self.axis
        if axis is None:
            return Markup()
        palette = Palette()
        rows = [_row("time", tag("div", axis.labels(), class_="ticks"), "in the end", "head")]
        rows += [_row("step", lanes.draw(self._steps(axis), axis, palette), "", "steps")]
        spoken: list[tuple[str, Markup]] = []
        for server in self.servers[:MOST_SERVERS]:
            rows += self._server(server, axis, palette, spoken, grain if plotted else None)
        figure = tag("figure", *rows, tag("figcaption", self._legend(palette)), class_="time")
        fallback = join(part for _, part in spoken) if tables else None
        folded = details("The same as tables", fallback) if fallback else None
        return join([self._lead(axis), figure, folded])

    def _lead(self, axis: Axis) -> Markup:
        span = f"{format_duration(axis.end - axis.begin)} from {at(axis.begin)} to {at(axis.end)} UTC."
        if axis.stall is None:
            return tag("p", span, class_="lead")
        still = tag("span", f"nothing moved for {format_duration(axis.end - axis.stall)}", class_="stillkey")
        return tag("p", span, " Shaded: ", still, f", from {at(axis.stall)} on.", class_="lead")

    def _legend(self, palette: Palette) -> Markup:
        names = dict.fromkeys(
            span.name
            for server in self.servers
            for spans in (server.phases, *(lane.phases for lane in server.lanes.values()))
            for span in spans
        )
        return lanes.legend(list(names)[:40], palette)

    def _steps(self, axis: Axis) -> LaneRow:
        spans: list[Span] = []
        for step in self.story.steps:
            if step.start is None or step.start.part != "main" or (step.end and step.end.t <= axis.begin) or len(spans) >= MOST_STEPS:
                continue
            span = Span(step.start.step, step.start.t, "step")
            span.end = step.end.t if step.end else None
            spans.append(span)
        return LaneRow("steps", spans)

    def _server(
        self, server: Server, axis: Axis, palette: Palette, spoken: list[tuple[str, Markup]], grain: float | None
    ) -> Iterator[Markup]:
        culprit = self.diagnosis.culprit.rank if self.diagnosis and self.diagnosis.culprit else None
        mine = [row for row in self._lanes(server, axis, culprit) if row.spans or row.states or row.alive_from is not None]
        for row in mine:
            yield _row(row.name, lanes.draw(row, axis, palette), row.note, "odd" if row.odd else "")
        spoken.append(("lanes", _lane_table(server, mine, axis)))
        if grain is None:
            return
        odd = f"rank {culprit}" if culprit is not None else None
        signals = {**server.curves, GPU: self.gpus.get(server.host, {})}
        for signal in plots.ORDER:
            curves = {name: curve for name, curve in signals.get(signal, {}).items() if len(curve.t) > 1 and curve.t[0] <= axis.end}
            if curves:
                yield _plot_row(plots.Row(signal, curves, odd if odd in curves else None), axis, grain)
                spoken.append((signal, _plot_table(signal, curves, axis)))

    def _lanes(self, server: Server, axis: Axis, culprit: int | None) -> list[LaneRow]:
        gone = server.exit[0] if server.exit else None
        last = server.phases[-1] if server.phases else None
        note = f"ended {at(gone)}" if gone else f"{last.name} for {format_duration(axis.end - last.begin)}" if last else ""
        ranks = list(lanes.rank_rows(server, culprit, axis.end))
        more = len(ranks) - MOST_LANES
        if more > 0:
            ranks = [row for row in ranks if row.odd] + [row for row in ranks if not row.odd][: MOST_LANES - 1]
            note += f"; {more} more ranks are not drawn"
        checks = LaneRow("health check", server.checks, note=server.checks[-1].name if server.checks else "")
        return [LaneRow(server.name or "server", server.phases, gone=gone, note=note), *ranks, checks]


def _row(label: str, field: Markup, value: object, class_: str = "") -> Markup:
    return tag(
        "div",
        tag("div", text(label, 200), class_="label"),
        tag("div", field, class_="field"),
        tag("div", value, class_="value"),
        class_=f"row {class_}".strip(),
    )


def _plot_row(row: plots.Row, axis: Axis, grain: float) -> Markup:
    total = plots.amount(row.signal, sum(curve.last for curve in row.curves.values()))
    note = tag("small", plots.change(row.signal, row.curves.values(), axis))
    return _row(row.signal, plots.plot(row, axis, grain), join([total, note]), "plotted")


def _lane_table(server: Server, rows: Iterable[LaneRow], axis: Axis) -> Markup:
    cells = [
        (
            row.name,
            prose(span.name, 200),
            format_duration(max(0.0, span.begin - axis.origin)),
            format_duration((span.end or row.gone or axis.end) - span.begin),
            "" if span.end or row.gone else "goes on",
        )
        for row in rows
        for span in [*row.spans, *row.states][:TABLE_LINES]
    ]
    head = ("lane", "what", "after", "took", "")
    return table(head, cells, caption=f"Lanes of {text(server.name or 'the server', 100)}") if cells else Markup()


def _plot_table(signal: str, curves: dict[str, Curve], axis: Axis) -> Markup:
    times = [axis.begin + (axis.end - axis.begin) * index / TABLE_TIMES for index in range(1, TABLE_TIMES + 1)]
    head = ["", *(format_duration(t - axis.origin) for t in times)]
    rows = [
        (name, *("–" if (value := curve.at(t)) is None else plots.amount(signal, value) for t in times))
        for name, curve in list(curves.items())[:TABLE_LINES]
    ]
    return table(head, rows, caption=f"{signal}, after")
