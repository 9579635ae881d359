"""The one time axis of all figures, and the stretch on it in which nothing moved."""

from __future__ import annotations

import math
from collections.abc import Iterator

from runbook.model.units import format_duration
from runbook.render.page.clock import LATEST
from runbook.render.page.markup import Markup, join, tag

WIDTH = 1000.0
"""Figures are drawn this wide and stretched to what the page has: at most about a pixel for a unit."""
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
MOST_TICKS = 7


class Axis:
    """From `begin` to `end`, unix seconds. `stall` is since when nothing moved, null when something did up to the end."""

    def __init__(self, begin: float, end: float, origin: float | None = None, stall: float | None = None) -> None:
        begin, end = min(max(begin, 0.0), LATEST), min(end, LATEST)
        self.begin = begin
        self.end = max(end, begin + 0.1)
        self.origin = begin if origin is None else origin
        self.stall = stall if stall is not None and begin < stall < self.end else (begin if stall is not None and stall <= begin else None)

    def x(self, t: float) -> float:
        """Place of a time, 0 to 1000."""
        share = (t - self.begin) / (self.end - self.begin)
        return round(WIDTH * min(1.0, max(0.0, share)), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Places and texts, in round times after the origin."""
        span = self.end - self.begin
        step = next((step for step in STEPS if span / step <= MOST_TICKS), 86400.0 * math.ceil(span / 86400 / MOST_TICKS))
        number = int((self.begin - self.origin) // step)
        while (t := self.origin + number * step) <= self.end:
            if t >= self.begin:
                yield self.x(t), format_duration(t - self.origin) if number else "0"
            number += 1

    def ground(self, height: float) -> Markup:
        """What lies under every row: the ticks and the stall."""
        lines = [tag("line", x1=x, x2=x, y1=0, y2=height, class_="tick") for x, _ in self.ticks()]
        if self.stall is not None:
            x = self.x(self.stall)
            lines.insert(0, tag("rect", x=x, y=0, width=round(WIDTH - x, 1), height=height, class_="stall"))
        return join(lines)

    def labels(self) -> Markup:
        """The texts of the ticks, as a row. One at the very end would stand outside and is left out."""
        return join(tag("span", text, style=f"left:{x / 10:.2f}%") for x, text in self.ticks() if x <= 0.97 * WIDTH)
