"""What a command prints: kept in bounded memory, passed on while it comes."""

import os
import time
from typing import Any, Dict, Tuple

CHUNK = 1 << 16
SPARSE_S = 0.5
SPARSE_BYTES = 4096


class Capture:
    """The first `keep` and the last four times `keep` bytes of a stream, in linear time."""

    def __init__(self, keep: int) -> None:
        self._keep_head, self._keep_tail = keep, 4 * keep
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = self._keep_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep_tail:
            self._cut()

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._keep_tail)]

    def result(self) -> Tuple[bytes, int]:
        """(what was kept, how many bytes were dropped between head and tail)."""
        self._cut()
        kept = bytes(self._head + self._tail)
        return kept, self._total - len(kept)


class Output:
    """Both output streams of a command, read when they have something.

    Live pieces stop while the controller is behind, and the next one says how many bytes it did not get; the capture has them.
    `sparse` ones are the ends of what came, and no more often than every SPARSE_S.
    """

    def __init__(self, ctx: Any, streams: Dict[int, str], keep: int, live: bool, sparse: bool = False) -> None:
        self._ctx, self._live, self._sparse = ctx, live, sparse
        self._told = float("-inf")
        self._withheld = dict.fromkeys(streams.values(), 0)
        self._captures = {name: Capture(keep) for name in streams.values()}
        self.open = dict(streams)
        """fd -> stream name, until its end."""

    def read(self, fd: int) -> None:
        """Take what is there; forget the stream at its end."""
        data = os.read(fd, CHUNK)
        name = self.open[fd]
        if not data:
            del self.open[fd]
            return
        self._captures[name].add(data)
        if self._live:
            self._tell(name, data)

    def _tell(self, name: str, data: bytes) -> None:
        now = time.monotonic()
        if not self._ctx.has_room() or (self._sparse and now - self._told < SPARSE_S):
            self._withheld[name] += len(data)
            return
        self._told = now
        piece = data[-SPARSE_BYTES:] if self._sparse else data
        self._ctx.emit({"stream": name, "withheld": self._withheld[name] + len(data) - len(piece)}, piece)
        self._withheld[name] = 0

    def result(self, name: str) -> Tuple[bytes, int]:
        """(kept bytes, dropped count) of a stream."""
        return self._captures[name].result()
