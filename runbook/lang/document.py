"""A YAML text after loading: plain data, and the place in the text that each part came from."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

from runbook.model.diagnostic import Span

Path = tuple[str | int, ...]

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What the parser counts as a line break."""


class Original(Protocol):
    """A repaired text, and where its parts stand in the file."""

    guessed: set[int]

    def original(self, span: Span) -> Span:
        """The place in the file as it is."""
        ...


class Document(NamedTuple):
    """One YAML document. Paths lead from the top: ("steps", 0, "kill"). Below an alias only the alias itself has a place."""

    file: str
    text: str
    data: Any
    spans: dict[Path, Span]
    key_spans: dict[Path, Span]
    extents: dict[Path, tuple[int, int]]
    """Offsets in `text` of each scalar with an expression in it, quotes included."""
    mended: Original | None = None
    """Knows the places in the file where `text` is a repaired reading of it; None where it is the file's own."""

    def __repr__(self) -> str:
        return f"Document({self.file!r}, {len(self.spans)} nodes)"

    def span(self, path: Path) -> Span:
        """Place of a value, or of the nearest parent that has one."""
        for length in range(len(path), -1, -1):
            found = self.spans.get(tuple(path[:length]))
            if found is not None:
                return found
        return Span(self.file, 1, 1)

    def is_guessed(self, span: Span | None) -> bool:
        """Whether a place is on a line that could only be guessed."""
        return self.mended is not None and span is not None and span.file == self.file and span.line in self.mended.guessed

    def key_span(self, path: Path) -> Span:
        """Place of the key that `path` ends in; without one (a list's item) that of the value."""
        return self.key_spans.get(tuple(path)) or self.span(path)

    def within(self, path: Path, offset: int, length: int) -> Span:
        """Place of `value[offset:offset + length]` of a text value; the whole value where folding or escapes hide it.

        Exact for the values that hold a `${{`, and for bare expressions on one line.
        """
        value = self._text_at(path)
        extent = self.extents.get(tuple(path)) or self._extent(path)
        if extent is None or not value:
            return self.span(path)
        wanted = value[offset : offset + length] or value[offset : offset + 1]
        nth = len(re.findall(f"(?={re.escape(wanted)})", value[: max(0, offset + len(wanted) - 1)]))
        hits = [found.start() for found in re.finditer(f"(?={re.escape(wanted)})", self.text[slice(*extent)])] if wanted else []
        if nth >= len(hits):
            return self.span(path)
        return self._place(extent[0] + hits[nth], length)

    def _text_at(self, path: Path) -> str | None:
        value = self.data
        for key in path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return None
        return value if isinstance(value, str) else None

    def _extent(self, path: Path) -> tuple[int, int] | None:
        """Offsets of a scalar on one line, from its span."""
        span = self.spans.get(tuple(path))
        if span is None:
            return None
        start = self._line_start(span.line) + span.column - 1
        return start, start + span.length

    def _line_start(self, line: int) -> int:
        position = 0
        for _ in range(line - 1):
            found = LINE_BREAK.search(self.text, position)
            if found is None:
                break
            position = found.end()
        return position

    def _place(self, index: int, length: int) -> Span:
        before = LINE_BREAK.split(self.text[:index])
        span = Span(self.file, len(before), len(before[-1]) + 1, length)
        return self.mended.original(span) if self.mended is not None else span
