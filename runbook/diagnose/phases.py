"""Which phase a server is in, from its log. Nothing here guesses: a phase is entered when its mark is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from runbook.diagnose.lines import TimedLine

READY = "ready"


class Reached(NamedTuple):
    """A phase that a rank entered, with the controller times at which its marks were read; `ended` null while it goes on."""

    phase: str
    rank: str
    began: float
    ended: float | None


class Track(NamedTuple):
    """The course of a start. `ready_at` is when the ready mark was read."""

    reached: tuple[Reached, ...]
    ready_at: float | None

    @property
    def current(self) -> str | None:
        """The phase entered last on any rank; `ready` once the ready mark was read; None before the first mark."""
        if self.ready_at is not None:
            return READY
        return self.reached[-1].phase if self.reached else None

    def last_per_rank(self) -> dict[str, str]:
        """The phase that each rank entered last."""
        return {entry.rank: entry.phase for entry in self.reached if entry.rank}


def track(lines: Sequence[TimedLine]) -> Track:
    """Follow the phase marks. A phase without an end mark ends when the same rank enters the next one."""
    reached: list[Reached] = []
    ready_at: float | None = None
    for t, line in lines:
        for phase in line.ends:
            _close(reached, t, line.rank, phase)
        for phase in line.begins:
            if not _is_open(reached, line.rank, phase):
                reached.append(Reached(phase, line.rank, t, None))
        if line.ready and ready_at is None:
            ready_at = t
    return Track(tuple(reached), ready_at)


def table(course: Track, origin: float) -> list[dict[str, Any]]:
    """Phases for people and expressions: name, start (s after `origin`), seconds (null while it goes on), ranks."""
    rows: list[dict[str, Any]] = []
    for name, entries in _runs(course):
        start = min(entry.began for entry in entries)
        ends = [_end(course, entry) for entry in entries]
        known = [end for end in ends if end is not None]
        seconds = round(max(known) - start, 3) if len(known) == len(ends) else None
        ranks = sorted({entry.rank for entry in entries if entry.rank})
        rows.append({"name": name, "start": round(start - origin, 3), "seconds": seconds, "ranks": ranks})
    if course.ready_at is not None:
        rows.append({"name": READY, "start": round(course.ready_at - origin, 3), "seconds": 0.0, "ranks": []})
    return rows


def rank_number(label: str) -> int | None:
    """The rank in a label with one number ("TP3" -> 3); None when several dimensions make it ambiguous."""
    numbers = re.findall(r"\d+", label)
    return int(numbers[0]) if len(numbers) == 1 else None


def _runs(course: Track) -> list[tuple[str, list[Reached]]]:
    """Group the ranks that went through the same phase together: a rank that enters it again starts a new group."""
    groups: list[tuple[str, list[Reached]]] = []
    for entry in course.reached:
        for name, entries in reversed(groups):
            if name == entry.phase and all(other.rank != entry.rank for other in entries):
                entries.append(entry)
                break
        else:
            groups.append((entry.phase, [entry]))
    return groups


def _end(course: Track, entry: Reached) -> float | None:
    """Its end mark, else the next phase of the same rank. Lines of the main process carry no rank and stand for all of them."""
    if entry.ended is not None:
        return entry.ended
    for other in course.reached[course.reached.index(entry) + 1 :]:
        if not entry.rank or other.rank in (entry.rank, ""):
            return other.began
    return course.ready_at


def _is_open(reached: list[Reached], rank: str, phase: str) -> bool:
    last = next((entry for entry in reversed(reached) if entry.rank == rank), None)
    return last is not None and last.phase == phase and last.ended is None


def _close(reached: list[Reached], t: float, rank: str, phase: str) -> None:
    for index in range(len(reached) - 1, -1, -1):
        entry = reached[index]
        if entry.phase == phase and entry.rank == rank and entry.ended is None:
            reached[index] = entry._replace(ended=t)
            return
