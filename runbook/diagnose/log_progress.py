"""Progress in the log: lines with new words, counters that go towards a total, steps that a phase's progress line reports.

A livelock can print another number on every line for ever. So numbers are masked before lines are compared, a bare counter without
a total is no progress, and a line that only puts known words into a new order is weak. The first sample is the baseline: what the
log said before it is no progress of this wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runbook.diagnose.fatal import EXCEPTION, TRACEBACK
from runbook.diagnose.lines import Bar, Line, TimedLine
from runbook.diagnose.motion import Motion
from runbook.model.sample import Sample, Seen

WORD = re.compile(r"[^\W\d_]{3,}")
SAME_NUMBER = 2
"""In more names than this the same count of the same total is a counter that stands still."""
GAUGE_FALLS = 2
"""What fell so often before it was full is a gauge."""


class Repeat(NamedTuple):
    """A line that says nothing new: a heartbeat, a retry, a bar that stands still."""

    t: float
    template: str
    text: str


class LogMotions(NamedTuple):
    """What moved in the log; `repeats` are the lines that did not; `bars` how far each counter came, (t, bar), by its name."""

    motions: tuple[Motion, ...]
    repeats: tuple[Repeat, ...]
    bars: dict[tuple[str, str, int], tuple[float, Bar]]
    steps: dict[str, tuple[float, str]]


def log_motions(samples: Sequence[Sample], lines: Sequence[TimedLine]) -> LogMotions:
    """Follow the log once. `steps` holds the last progress line of each template, with its time."""
    reader = _Reader(samples)
    motions = [motion for timed in lines for motion in reader.take(timed)]
    return LogMotions(tuple(motions), tuple(reader.repeats), reader.bars, reader.steps)


class _Reader:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._before = {sample.t: samples[max(0, index - 1)].t for index, sample in enumerate(samples)}
        self._first = next((sample.t for sample in samples if isinstance(sample.log, Seen)), None)
        self._templates: set[str] = set()
        self._words: set[str] = set()
        self._in_fault = False
        self._courses: dict[tuple[str, str, int], _Course] = {}
        self._standing: dict[tuple[str, int, int], set[str]] = {}
        self.repeats: list[Repeat] = []
        self.bars: dict[tuple[str, str, int], tuple[float, Bar]] = {}
        self.steps: dict[str, tuple[float, str]] = {}

    def take(self, timed: TimedLine) -> Iterator[Motion]:
        t, line = timed
        if line.noise or not line.template or self._tells_of_a_fault(line):
            return
        seconds, counts = t - self._before.get(t, t), t != self._first
        if line.bar is not None:
            yield from self._bar(t, seconds, line.rank, line.bar, counts)
        elif line.moves:
            known = self.steps.get(line.template)
            self.steps[line.template] = (t, line.text)
            if known is not None and known[1] != line.text and counts:
                yield Motion(t, seconds, "steps", 1.0, line.msg)
            elif known is None and counts:
                yield Motion(t, seconds, "log", 1.0, line.msg)
        elif line.template not in self._templates:
            words = set(WORD.findall(line.template))
            marks = bool(line.begins or line.ends or line.ready)
            if counts:
                yield Motion(t, seconds, "log", 1.0, line.msg, strong=marks or not words <= self._words or not words)
            self._words |= words
        else:
            self.repeats.append(Repeat(t, line.template, line.msg))
        self._templates.add(line.template)

    def _tells_of_a_fault(self, line: Line) -> bool:
        """A traceback with all that belongs to it, and lines that name an error are no progress; what comes after them may be."""
        continues = line.msg[:1] in " \t|+^~" or not line.msg.strip()
        if TRACEBACK in line.text:
            self._in_fault = True
            return True
        if self._in_fault and continues:
            return True
        ended, self._in_fault = self._in_fault and EXCEPTION.match(line.msg) is not None, False
        self._in_fault = ended or line.fatal
        return ended or line.fatal

    def _bar(self, t: float, seconds: float, rank: str, bar: Bar, counts: bool) -> Iterator[Motion]:
        """A bar moves when it passes its highest mark, or begins again after it was full.

        A loader that starts over again and again does not move, nor does a gauge that rises and falls, nor a number that stands
        still while the words around it change.
        """
        key = (rank, bar.name, bar.total)
        course = self._courses.setdefault(key, _Course())
        standing = self._standing.setdefault((bar.name.split(" ")[-1], bar.done, bar.total), set())
        standing.add(bar.name)
        text = f"{bar.name} {bar.done}/{bar.total}"
        before = course.highest
        if not course.take(bar) or len(standing) > SAME_NUMBER:
            self.repeats.append(Repeat(t, bar.name, text))
            return
        self.bars[key] = (t, bar)
        if counts:
            yield Motion(t, seconds, "bar", float(bar.done - max(0, before)), text, bar=bar)


class _Course:
    """How a bar went so far."""

    def __init__(self) -> None:
        self.highest = -1
        self._last = -1
        self._falls = 0

    def take(self, bar: Bar) -> bool:
        """Whether this reading is progress."""
        if bar.done < self._last:
            if self._last >= bar.total:
                self.highest = -1
            else:
                self._falls += 1
        self._last = bar.done
        moved = bar.done > self.highest and self._falls < GAUGE_FALLS
        self.highest = max(self.highest, bar.done)
        return moved
