"""Small plots of what moved, drawn by hand: polylines simplified to half a pixel."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runbook.model.units import format_duration, format_size
from runbook.render.page.axis import WIDTH, Axis
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
LEAST = {WEIGHTS: 1 << 20, GPU: 1 << 20}
"""And the gain between two looks that it takes at least."""
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
        points = simplified(columns(placed(row.curves[name], axis, bottom, top), grain), grain * TOLERANCE)
        drawn = " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in points)
        lines.append(tag("polyline", points=drawn, class_="odd" if name == row.odd else "even" if row.odd else None))
    picture = join([axis.ground(HEIGHT), *bars(row, axis), *lines])
    return tag(
        "svg", picture, viewBox=f"0 0 1000 {HEIGHT:g}", preserveAspectRatio="none", role="img", aria_label=spoken(row, axis), class_="plot"
    )


def placed(curve: Curve, axis: Axis, bottom: float, top: float) -> list[Point]:
    """The points of a curve on the axis, 0 at the top; the last one before it stands at its beginning.

    Everything stays a little inside the frame. A curve that never moved lies at the bottom.
    """
    first, end = bisect_left(curve.t, axis.begin), bisect_right(curve.t, axis.end)
    across, up = WIDTH / (axis.end - axis.begin), (FLOOR - 3) / (top - bottom) if top > bottom else 0.0
    begin = axis.begin
    points = [
        ((t - begin) * across, FLOOR - (value - bottom) * up) for t, value in zip(curve.t[first:end], curve.value[first:end], strict=True)
    ]
    return points if first == 0 else [(0.0, FLOOR - (curve.value[first - 1] - bottom) * up), *points]


def bars(row: Row, axis: Axis) -> Iterator[Markup]:
    """Where the signal moved, all lines together: a low bar for weak motion, a high one for strong."""
    if row.signal not in MOVES:
        return
    weak, strong = MOVES[row.signal]
    moved: list[list[float]] = []
    for (begin, end), gained in sorted(_gains(row).items()):
        rate = gained / max(end - begin, 1e-3)
        if rate < weak or gained < LEAST.get(row.signal, 0):
            continue
        level, x1, x2 = (2.0 if rate >= strong else 1.0), axis.x(begin), axis.x(end)
        if moved and moved[-1][0] == level and x1 - moved[-1][2] < 1.0:
            moved[-1][2] = max(x2, moved[-1][2])
        elif x2 > x1:
            moved.append([level, x1, x2])
    for level, x1, x2 in moved:
        high = 2 * level
        yield tag("rect", x=x1, y=HEIGHT - high, width=round(max(1.0, x2 - x1), 1), height=high, class_="moved")


def _gains(row: Row) -> dict[tuple[float, float], float]:
    """What all lines together gained between two readings."""
    gains: dict[tuple[float, float], float] = {}
    for curve in row.curves.values():
        for times, before, after in zip(itertools.pairwise(curve.t), curve.value, curve.value[1:], strict=False):
            gains[times] = gains.get(times, 0.0) + abs(after - before)
    return gains


def columns(points: Iterable[Point], width: float) -> list[Point]:
    """Of the points in one column of pixels the first, the lowest, the highest and the last."""
    found: list[Point] = []
    inside: list[Point] = []
    column = -1.0
    for point in points:
        if point[0] // width != column:
            found += _extremes(inside)
            inside = []
            column = point[0] // width
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
