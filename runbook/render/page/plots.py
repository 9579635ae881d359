"""Small plots of what moved, drawn by hand: polylines simplified to half a pixel."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runbook.model.units import format_duration, format_size
from runbook.render.page.axis import Axis
from runbook.render.page.curves import Curve
from runbook.render.page.markup import Markup, join, tag
from runbook.render.page.observed import GPU, LOG, READ, RUN, WEIGHTS

HEIGHT = 44.0
TOLERANCE = 0.5
FLOOR = 37.0
"""Curves stay above this line; below it a bar stands wherever the signal moved."""
MOST_LINES = 64
BYTES = frozenset({READ, WEIGHTS, GPU})
ORDER = (READ, WEIGHTS, GPU, LOG, RUN)
MOVES = {READ: (16 * 1024, 64 * 1024), WEIGHTS: (1, 1), GPU: (1, 1), LOG: (1e-9, 1e-9)}
"""Gain per second from which a signal moves, weakly and strongly, as the verdict counts it. The run time of threads is no progress."""
Point = tuple[float, float]


class Row(NamedTuple):
    """One plot: what it shows, one curve a line, and the one of them that the verdict names."""

    signal: str
    curves: Mapping[str, Curve]
    odd: str | None = None


def plot(row: Row, axis: Axis, grain: float = 1.0) -> Markup:
    """The picture of a row with its text alternative. `grain`: pixels that may become one."""
    top = max((value for curve in row.curves.values() for value in curve.value), default=0.0)
    bottom = min((value for curve in row.curves.values() for value in curve.value), default=0.0)
    if row.signal in (GPU, WEIGHTS):
        bottom = 0.0
    lines = []
    names = [name for name in row.curves if name != row.odd][:MOST_LINES]
    for name in names if row.odd is None else [*names, row.odd]:
        points = [(axis.x(t), height_of(value, bottom, top)) for t, value in visible(row.curves[name], axis)]
        drawn = " ".join(f"{x:g},{y:g}" for x, y in simplified(columns(points, grain), grain * TOLERANCE))
        lines.append(tag("polyline", points=drawn, class_="odd" if name == row.odd else "even" if row.odd else None))
    picture = join([axis.ground(HEIGHT), *bars(row, axis), *lines])
    return tag(
        "svg", picture, viewBox=f"0 0 1000 {HEIGHT:g}", preserveAspectRatio="none", role="img", aria_label=spoken(row, axis), class_="plot"
    )


def visible(curve: Curve, axis: Axis) -> Iterator[Point]:
    """The points of a curve on the axis; the last one before it stands at its beginning."""
    before: float | None = None
    for t, value in zip(curve.t, curve.value, strict=True):
        if t < axis.begin:
            before = value
            continue
        if before is not None:
            yield axis.begin, before
            before = None
        if t <= axis.end:
            yield t, value


def height_of(value: float, bottom: float, top: float) -> float:
    """A value's place, 0 at the top; everything stays a little inside the frame. A curve that never moved lies at the bottom."""
    share = (value - bottom) / (top - bottom) if top > bottom else 0.0
    return round(FLOOR - share * (FLOOR - 3), 1)


def bars(row: Row, axis: Axis) -> Iterator[Markup]:
    """Where the signal moved, all lines together: a low bar for weak motion, a high one for strong."""
    if row.signal not in MOVES:
        return
    weak, strong = MOVES[row.signal]
    gains: dict[tuple[float, float], float] = {}
    for curve in row.curves.values():
        for (begin, before), (end, after) in itertools.pairwise(zip(curve.t, curve.value, strict=True)):
            gains[begin, end] = gains.get((begin, end), 0.0) + abs(after - before)
    moved: list[list[float]] = []
    for (begin, end), gained in sorted(gains.items()):
        rate = gained / max(end - begin, 1e-3)
        level, x1, x2 = (2.0 if rate >= strong else 1.0), axis.x(begin), axis.x(end)
        if rate < weak or x2 <= x1:
            continue
        if moved and moved[-1][0] == level and x1 - moved[-1][2] < 1.0:
            moved[-1][2] = max(x2, moved[-1][2])
        else:
            moved.append([level, x1, x2])
    for level, x1, x2 in moved:
        high = 2 * level
        yield tag("rect", x=x1, y=HEIGHT - high, width=round(max(1.0, x2 - x1), 1), height=high, class_="moved")


def columns(points: Iterable[Point], width: float) -> list[Point]:
    """Of the points in one column of pixels the first, the lowest, the highest and the last."""
    found: list[Point] = []
    inside: list[Point] = []
    for point in points:
        if inside and point[0] // width != inside[0][0] // width:
            found += _extremes(inside)
            inside = []
        inside.append(point)
    return found + _extremes(inside)


def _extremes(points: list[Point]) -> list[Point]:
    if len(points) <= 4:
        return points
    ends = sorted({0, len(points) - 1, *(pick(range(len(points)), key=lambda i: points[i][1]) for pick in (min, max))})
    return [points[index] for index in ends]


def simplified(points: Sequence[Point], tolerance: float = TOLERANCE) -> list[Point]:
    """Points of the same line, so few that no left-out one is further than `tolerance` above or below it. Linear in their number.

    From the newest kept point it goes on as long as one straight line can still pass by all points since.
    """
    kept = list(points[:1])
    low, high = float("-inf"), float("inf")
    for before, (x, y) in itertools.pairwise(points):
        x0, y0 = kept[-1]
        slope = (y - y0) / (x - x0) if x > x0 else None
        if before is not kept[-1] and (slope is None or not low <= slope <= high):
            kept.append(before)
            x0, y0 = before
            low, high = float("-inf"), float("inf")
        if x > x0:
            low, high = max(low, (y - tolerance - y0) / (x - x0)), min(high, (y + tolerance - y0) / (x - x0))
        elif abs(y - y0) > tolerance:
            low, high = float("inf"), float("-inf")  # a jump in no time: the next point starts anew
    return [*kept, points[-1]] if len(points) > 1 else kept


def amount(signal: str, value: float) -> str:
    """A value as people write it."""
    if signal in BYTES:
        return format_size(value)
    return format_duration(value) if signal == RUN else f"{value:,.0f}"


def recent_s(axis: Axis) -> float:
    """Over how long the newest change is told: the stall, else the last quarter of a minute."""
    return axis.end - axis.stall if axis.stall is not None else min(15.0, (axis.end - axis.begin) / 4)


def change(signal: str, curves: Iterable[Curve], axis: Axis) -> str:
    """What was gained in the end, and in how long: "+0B in 10.5s". Readings are rarer than that for some signals."""
    gains = [curve.gain(axis.end - recent_s(axis)) for curve in curves]
    gained = sum(gain for gain, _ in gains)
    return f"{'+' if gained >= 0 else ''}{amount(signal, gained)} in {format_duration(max(seconds for _, seconds in gains))}"


def spoken(row: Row, axis: Axis) -> str:
    """The plot in words."""
    total = sum(curve.last for curve in row.curves.values())
    said = f"{row.signal}: {amount(row.signal, total)} at the end, {change(row.signal, row.curves.values(), axis)}"
    if row.odd is not None:
        odd = row.curves[row.odd]
        said += f"; {row.odd}: {amount(row.signal, odd.last)}, {change(row.signal, [odd], axis)}"
    return said
