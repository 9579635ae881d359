"""Finding `${{ … }}` in text. `$${{` is the escape: it stands for a literal `${{`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

OPEN, CLOSE = "${{", "}}"
MAX_SOURCE = 4096
"""Characters of one expression."""

_OPENING = re.compile(r"\$?\$\{\{")
_CLOSERS = {"}": "{", ")": "(", "]": "["}


class Found(NamedTuple):
    """One `${{ … }}` in a text: `text[start:end]` with its braces; `source` is what stands between, blanks included.

    `closed` is False when the closing braces are missing: then it reaches to the end of the text.
    """

    start: int
    end: int
    source: str
    closed: bool = True

    @property
    def offset(self) -> int:
        """Where `source` begins in the text."""
        return self.start + len(OPEN)


def mentions(value: Any) -> bool:
    """Whether there may be an expression anywhere in nested data."""
    if isinstance(value, str):
        return OPEN in value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(mentions(part) for part in parts)


def find_expressions(text: str) -> list[Found]:
    """All expressions of a text, in order; only the last can be unclosed."""
    found: list[Found] = []
    position = 0
    while opening := _OPENING.search(text, position):
        position = opening.end()
        if opening[0] != OPEN:
            continue
        close = _closing(text, position)
        if close < 0:
            found.append(Found(opening.start(), len(text), text[position:], closed=False))
            break
        found.append(Found(opening.start(), close + len(CLOSE), text[position:close]))
        position = close + len(CLOSE)
    return found


def is_whole(text: str) -> bool:
    """Is the text one expression and nothing else but blanks around it? Such a text keeps the type of its value."""
    stripped = text.strip()
    if not (stripped.startswith(OPEN) and stripped.endswith(CLOSE)):
        return False
    found = find_expressions(stripped)
    return len(found) == 1 and found[0].closed and found[0].start == 0 and found[0].end == len(stripped)


def unescape(text: str) -> str:
    """`$${{` becomes `${{`; for text between expressions."""
    return text.replace("$" + OPEN, OPEN)


def _closing(text: str, position: int) -> int:
    """Where the `}}` stands that ends an expression; -1 for nowhere. Braces and quotes inside the expression are skipped."""
    depth = 0
    quote = ""
    index, stop = position, min(len(text), position + MAX_SOURCE + 256)
    while index < stop:
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "}" and depth == 0:
            if text.startswith(CLOSE, index):
                return index
        elif char in "{[(":
            depth += 1
        elif char in _CLOSERS:
            depth -= 1 if depth else 0
        index += 1
    return text.find(CLOSE, position)  # quotes or brackets that do not close: the parser says so
