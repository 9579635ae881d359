"""What a progress signal is: something moved between two readings of the same source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from runbook.diagnose.lines import Bar
from runbook.model.sample import Absent, Blind, ProcessSample, Sample, Seen

STRONG_BYTES_PER_S = 64 * 1024
"""The floors are estimates: a store that is polled while everything hangs moved 8 KiB/s, a throttled but live reader 21 KiB/s."""
WEAK_BYTES_PER_S = 16 * 1024
MEMORY_STEP = 1024 * 1024
Key = tuple[int, int]
"""A process: pid and start time."""


class Motion(NamedTuple):
    """Something moved between two samples. `amount` is bytes for byte signals, else a count; weak motion does not prove life."""

    t: float
    seconds: float
    signal: str
    amount: float
    text: str
    strong: bool = True
    bar: Bar | None = None


def rows(sample: Sample) -> dict[Key, ProcessSample]:
    """The processes of the tree, by pid and start."""
    if not isinstance(sample.processes, Seen):
        return {}
    return {(process.pid, process.start): process for process in sample.processes.value}


def readings(samples: Sequence[Sample], source: str) -> Iterator[tuple[Sample, Any]]:
    """The samples in which a source was seen, with what it said. Sources are read at different paces, so each keeps its own series."""
    for sample in samples:
        outcome = getattr(sample, source)
        if isinstance(outcome, Seen):
            yield sample, outcome.value


def seen(outcome: Seen[Any] | Absent | Blind) -> Any:
    """The value of a reading, None when there is none."""
    return outcome.value if isinstance(outcome, Seen) else None


def by_rate(t: float, seconds: float, signal: str, amount: float, text: str) -> Iterator[Motion]:
    """Bytes as motion: strong above the rate floor, weak above a quarter of it, else nothing."""
    if seconds > 0 and amount >= WEAK_BYTES_PER_S * seconds:
        yield Motion(t, seconds, signal, amount, text, strong=amount >= STRONG_BYTES_PER_S * seconds)
