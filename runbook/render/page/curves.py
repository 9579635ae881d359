"""What was measured over time, folded so that a day of samples stays small: curves, and spans of a state."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

DRAWN = 1_000
"""Of a long run about this many samples are drawn: finer than a pixel."""


class Curve:
    """Values over time (unix seconds, rising)."""

    __slots__ = ("t", "value")

    def __init__(self) -> None:
        self.t = array("d")
        self.value = array("d")

    def add(self, t: float, value: float) -> None:
        """The next value."""
        self.t.append(t)
        self.value.append(value)

    @property
    def last(self) -> float:
        """The newest value."""
        return self.value[-1]

    def gain(self, since: float) -> tuple[float, float]:
        """What was gained, and in how many seconds: from the first reading after `since`, or the one before it, to the newest."""
        inside = bisect_left(self.t, since)
        first = max(0, inside if inside < len(self.t) - 1 else len(self.t) - 2)
        return self.value[-1] - self.value[first], self.t[-1] - self.t[first]

    def at(self, t: float) -> float | None:
        """The newest value at `t` or before; None before the first."""
        before = bisect_right(self.t, t)
        return self.value[before - 1] if before else None


class Total:
    """A counter that only rises, summed over processes that come and go: what the dead counted stays in."""

    __slots__ = ("_base", "_last")

    def __init__(self) -> None:
        self._base: dict[tuple[int, int], int] = {}
        self._last: dict[tuple[int, int], int] = {}

    def add(self, key: tuple[int, int], value: int) -> None:
        """A reading of one process. A lower one than before means that some of its threads ended, not that time ran backwards."""
        before = self._last.get(key, 0)
        if value < before:
            self._base[key] = self._base.get(key, 0) + before - value
        self._last[key] = value

    def __int__(self) -> int:
        return sum(self._last.values()) + sum(self._base.values())


class Span:
    """Something that lasted; `end` is null while it goes on."""

    __slots__ = ("begin", "end", "name", "tone")

    def __init__(self, name: str, begin: float, tone: str = "") -> None:
        self.name = name
        self.begin = begin
        self.end: float | None = None
        self.tone = tone


class Spans(list[Span]):
    """Spans one after the other."""

    def enter(self, name: str, t: float, tone: str = "") -> None:
        """The next one begins, unless it is the one that goes on."""
        if self and self[-1].end is None:
            if self[-1].name == name:
                return
            self[-1].end = t
        self.append(Span(name, t, tone))

    def leave(self, t: float, name: str | None = None) -> None:
        """The one that goes on ends; with `name`, only that one."""
        if self and self[-1].end is None and name in (None, self[-1].name):
            self[-1].end = t
