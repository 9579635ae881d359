"""What a command prints, kept as a log would be."""

from __future__ import annotations

import threading

from runbook.model.sample import LogSample

MOST_LINES = 200
LONGEST_LINE = 2000


class Printed:
    """What a command prints, as lines for a sample. Pieces come from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rest = b""
        self._lines: list[str] = []
        self._skipped = 0
        self._from = self._to = 0

    def take(self, data: bytes) -> None:
        """Take the next piece."""
        with self._lock:
            self._to += len(data)
            *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
            self._lines += [line[: 4 * LONGEST_LINE].decode("utf-8", "backslashreplace")[:LONGEST_LINE] for line in whole if line]
            self._rest = self._rest[-LONGEST_LINE:]
            if len(self._lines) > MOST_LINES:
                self._skipped += len(self._lines) - MOST_LINES
                del self._lines[MOST_LINES // 2 : -MOST_LINES // 2]

    def gained(self) -> LogSample:
        """What came since the sample before."""
        with self._lock:
            lines, self._lines = tuple(self._lines), []
            skipped, self._skipped = self._skipped, 0
            begin, self._from = self._from, self._to
            return LogSample(path="its output", inode=1, size=self._to, offset=begin, end=self._to, lines=lines, skipped=skipped)
