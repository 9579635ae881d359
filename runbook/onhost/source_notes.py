"""Stacks with what the source of their lines says: the lock that a thread waits for, those that it holds, what its loop does."""

import time
from typing import Any, Callable, Dict, List, Optional

from . import lock_paths, source_locks, source_loops, source_signals, source_tree
from .source_locks import Spot

TOTAL_S = 1.0  # for the files of one process; what was parsed stays, so the next look gets further
Row = Dict[str, Any]


class _Files:
    """The files of one process, each read once, until the time is spent."""

    def __init__(self, pid: int) -> None:
        self._pid, self._until = pid, time.monotonic() + TOTAL_S
        self._known: Dict[str, Optional[source_tree.Source]] = {}

    def spots(self, row: Row) -> List[Spot]:
        """The frames of a thread with their sources."""
        return [Spot(self._of(path), line, objects) for path, line, objects in row["spots"]]

    def _of(self, path: str) -> Optional[source_tree.Source]:
        if path not in self._known:
            self._known[path] = source_tree.read(self._pid, path) if time.monotonic() < self._until else None
        return self._known[path]


def add(pid: int, rows: List[Row], again: Callable[[], Any]) -> List[Row]:
    """Rows of all threads of a process, as `py_spy.threads` gives them, with `wants`, `holds` and `loop` in place of `spots`, and of
    the main thread `interrupts`.

    again: the rows once more, with the addresses of the local objects; asked only where a lock, or a lock file, cannot be named without.
    """
    files = _Files(pid)
    found = source_locks.read([files.spots(row) for row in rows])
    if any(one.asks for one in found) or any(row["main"] and lock_paths.asks(row) for row in rows):
        more = again()
        known = {row["tid"]: row for row in more} if isinstance(more, list) else {}
        rows = [known[row["tid"]] if _same(row, known.get(row["tid"])) else row for row in rows]
        found = source_locks.read([files.spots(row) for row in rows])
    noted = []
    for at, row in enumerate(rows):
        spots = files.spots(row)
        more = {"wants": found[at].wants, "holds": list(found[at].holds), "loop": source_loops.read(spots)}
        if row["main"]:
            more["interrupts"] = source_signals.interrupts(pid, spots)
            if lock_paths.asks(row):
                more["lock_file"], more["lock_class"] = lock_paths.of(pid, row)
        noted.append(dict(row, **more))
        del noted[-1]["spots"]
    return noted


def _same(row: Row, other: Any) -> bool:
    return other is not None and other["frames"] == row["frames"] and "note" not in other and "note" not in row
