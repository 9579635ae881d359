"""A file of any size without its secrets: line by line in blocks, so that no end of a block runs through a secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runbook.engine.redaction.blocks import BEGIN, END, LONGEST

BLOCK = 1 << 20
"""Characters that are looked at together."""
REACH = 8_192
"""A line that is longer than a block is cut where no word is; so far back, at most, a blank is looked for."""

NETRC = 500
"""Characters of an entry of a .netrc file, which has several lines."""


class Blocks:
    """Collects pieces of text, gives out whole blocks. Every block ends with a line, never inside a private key."""

    def __init__(self, block: int = BLOCK) -> None:
        self._held = ""
        self._block = block

    def add(self, piece: str) -> Iterator[str]:
        """The blocks that are complete now."""
        self._held += piece
        while len(self._held) >= self._block:
            end = self._end()
            if end <= 0:
                return
            yield self._held[:end]
            self._held = self._held[end:]

    def rest(self) -> str:
        """The last block."""
        held, self._held = self._held, ""
        return held

    def _end(self) -> int:
        held = self._held
        end = held.rfind("\n") + 1
        if end == 0:  # a line without an end in sight
            if len(held) < self._block + REACH:
                return 0
            end = max(held.rfind(char, len(held) - REACH) for char in " \t,;\r") + 1 or len(held)
        begin = max((found.start() for found in BEGIN.finditer(held, max(0, end - LONGEST - 100), end)), default=None)
        if begin is not None and END.search(held, begin, end) is None and len(held) - begin <= LONGEST:
            return held.rfind("\n", 0, begin) + 1
        entry = held.rfind("\nmachine ", max(0, end - NETRC), end)
        return entry + 1 if entry > 0 else end


def blocks(pieces: Iterable[str], block: int = BLOCK) -> Iterator[str]:
    """The same text in blocks."""
    held = Blocks(block)
    for piece in pieces:
        yield from held.add(piece)
    if rest := held.rest():
        yield rest
