"""What moved, over time: curves from the samples of a run. A look that was blind gives no point, never a zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from runbook.model.event import AnyEvent, SampleTaken
from runbook.model.sample import ProcessSample, Sample, Seen


class Point(NamedTuple):
    """A value at controller time `t`."""

    t: float
    value: float


class Series(NamedTuple):
    """One curve. `total`: it counts up from the first look, and its rate is what people look at. `unit` is B or s."""

    name: str
    host: str
    unit: str
    total: bool
    points: list[Point]


class _Sum:
    """Adds up what each process (or thread) gained since the first look; one that was born later counts from zero."""

    def __init__(self) -> None:
        self.last: dict[tuple[int, ...], int] = {}
        self.sum = 0.0

    def add(self, readings: dict[tuple[int, ...], int], scale: float = 1.0) -> float:
        first = not self.last
        for key, value in readings.items():
            self.sum += scale * max(0, value - self.last.get(key, value if first else 0))
        self.last.update(readings)
        return self.sum


class Curves:
    """The curves of the events that were taken in so far."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Series] = {}
        self._sums: dict[tuple[str, str], _Sum] = {}

    def apply(self, event: AnyEvent) -> None:
        """Take one event in."""
        if isinstance(event, SampleTaken):
            _take(event.sample, self._curves, self._sums)

    def drawn(self) -> list[Series]:
        """All curves with at least two points, in a fixed order of kinds."""
        order = {name: place for place, name in enumerate(("read", "weights", "GPU", "log", "run time", "rss"))}
        found = [curve for curve in self._curves.values() if len(curve.points) > 1]
        return sorted(found, key=lambda curve: (order.get(curve.name.split(" ")[0], 9), curve.host, curve.name))


def series(events: Iterable[AnyEvent]) -> list[Series]:
    """The curves of these events."""
    curves = Curves()
    for event in events:
        curves.apply(event)
    return curves.drawn()


def _take(sample: Sample, curves: dict[tuple[str, str], Series], sums: dict[tuple[str, str], _Sum]) -> None:
    def put(name: str, unit: str, value: float, *, total: bool = False) -> None:
        host = sample.host
        curves.setdefault((host, name), Series(name, host, unit, total, [])).points.append(Point(sample.t, value))

    def gained(name: str, unit: str, readings: dict[tuple[int, ...], int], scale: float = 1.0) -> None:
        if readings:
            put(name, unit, sums.setdefault((sample.host, name), _Sum()).add(readings, scale), total=True)

    of = f" of {sample.server}" if sample.server else ""
    if isinstance(sample.processes, Seen):
        rows: tuple[ProcessSample, ...] = sample.processes.value
        gained(f"read{of}", "B", {(row.pid, row.start): row.io.value.rchar for row in rows if isinstance(row.io, Seen)})
        gained(f"run time{of}", "s", {(row.pid, row.start, t.tid): t.run_ns for row in rows for t in row.threads}, 1e-9)
        if weights := [row.mapped_weights.value for row in rows if isinstance(row.mapped_weights, Seen)]:
            put(f"weights{of}", "B", sum(weights))
        put(f"rss{of}", "B", sum(row.rss for row in rows))
    if isinstance(sample.log, Seen):
        put(f"log{of}", "B", sample.log.value.end, total=True)
    if isinstance(sample.gpus, Seen):
        for gpu in sample.gpus.value:
            put(f"GPU {gpu.index} memory", "B", gpu.used)
