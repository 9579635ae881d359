"""Keys of a file's left edge that stand a blank or two in: YAML reads them into the block above, or stops there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from runbook.lang.document import Path
from runbook.model.diagnostic import Diagnostic, Span

_KEY = re.compile(r"( {1,2})([A-Za-z_][\w-]*) *:(?:\s|$)")


def _nowhere(data: Any) -> Iterable[Path]:
    return ()


class Edge(NamedTuple):
    """The keys that begin in column 1. `in_items`: those that an item of a list may have as well.

    `strays` finds, in data that could be read, keys of the edge that stand in the value of another one and cannot belong there.
    """

    keys: frozenset[str] = frozenset()
    in_items: frozenset[str] = frozenset()
    strays: Callable[[Any], Iterable[Path]] = _nowhere

    def at(self, lines: Sequence[str], number: int, file: str) -> Diagnostic | None:
        """A line, counted from 1, as a key that should begin in column 1; None when it is none."""
        found = _KEY.match(lines[number - 1]) if 0 < number <= len(lines) else None
        if found is None or found[2] not in self.keys:
            return None
        column = len(found[1])
        if found[2] in self.in_items and _in_item(lines[: number - 1], column):
            return None
        summary = f"`{found[2]}` is indented by {column} blank{'s' if column > 1 else ''}, but it is a key of the whole file"
        return Diagnostic(
            code="indented-key", summary=summary, span=Span(file, number, column + 1, len(found[2])), hint="begin it in column 1"
        )

    def misread(self, data: Any, spans: dict[Path, Span], lines: Sequence[str]) -> Diagnostic | None:
        """The first stray of data that could be read."""
        places = sorted((span.line, span.file) for path in self.strays(data) if (span := spans.get(path)) is not None)
        return next((found for line, file in places if (found := self.at(lines, line, file)) is not None), None)


def _in_item(above: Sequence[str], column: int) -> bool:
    """Whether a line that begins in a column, from 0, continues an item of the list above it."""
    for line in reversed(above):
        blanks = len(line) - len(line.lstrip())
        if line.strip() and blanks < column:
            return line.lstrip().startswith("- ")
    return False
