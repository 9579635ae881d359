"""Curves as Unicode block characters on one time axis: they survive every tracker, as text in a code block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from runbook.model.units import format_duration, format_size
from runbook.render.inert import one_line
from runbook.render.series import Point, Series

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_SEEN = "·"
WIDTH = 48
MOST = 16
LONGEST_NAME = 40


def sparks(curves: Sequence[Series], width: int = WIDTH, most: int = MOST) -> list[str]:
    """A line for each curve that was ever above zero, below them the time axis; empty without curves. `·`: not seen then."""
    shown = [curve for curve in curves if any(point.value for point in curve.points)][:most]
    if not shown:
        return []
    begin = min(curve.points[0].t for curve in shown)
    end = max(curve.points[-1].t for curve in shown)
    names = [one_line(_name(curve), LONGEST_NAME) for curve in shown]
    column = max(map(len, names))
    lines = [
        f"{name:<{column}}  {_blocks(curve, begin, end, width)}  {_range(curve)}".rstrip() for name, curve in zip(names, shown, strict=True)
    ]
    span = format_duration(max(0.0, end - begin))
    return [*lines, f"{'':<{column}}  {'0s':<{max(0, width - len(span))}}{span}"]


def _name(curve: Series) -> str:
    return f"{curve.host}: {curve.name}{' per second' if curve.total else ''}"


def rates(points: Sequence[Point]) -> list[Point]:
    """The gain per second between two looks, at the later one."""
    return [Point(b.t, max(0.0, b.value - a.value) / (b.t - a.t)) for a, b in itertools.pairwise(points) if b.t > a.t]


def _blocks(curve: Series, begin: float, end: float, width: int) -> str:
    """The largest value of each stretch of time; a rate holds from the look before to its own."""
    points = rates(curve.points) if curve.total else curve.points
    top = max((point.value for point in points), default=0.0)
    scale = (width - 1) / (end - begin) if end > begin else 0.0
    highest: list[float | None] = [None] * width
    reach = curve.points[0].t
    for point in points:
        first = int((reach - begin) * scale) + (1 if curve.total and reach > begin else 0)
        last = int((point.t - begin) * scale)
        for place in range(max(0, min(first, last)), min(width, last + 1)):  # clocks that were set back can lead out of the picture
            before = highest[place]
            highest[place] = point.value if before is None else max(before, point.value)
        reach = point.t
    return "".join(NOT_SEEN if value is None else BLOCKS[round(value / top * 7) if top else 0] for value in highest)


def _range(curve: Series) -> str:
    if curve.total:
        found = rates(curve.points)
        last, peak = found[-1].value if found else 0.0, max((point.value for point in found), default=0.0)
        return f"peak {_amount(peak, curve.unit)}/s, at last {_amount(last, curve.unit)}/s"
    values = [point.value for point in curve.points]
    return f"{_amount(min(values), curve.unit)} to {_amount(max(values), curve.unit)}, at last {_amount(values[-1], curve.unit)}"


def _amount(value: float, unit: str) -> str:
    return format_size(value) if unit == "B" else f"{value:.2f}{unit}"
