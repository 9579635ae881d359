"""Text from a host made inert: what is left cannot steer a terminal, a page or a ticket, and its size is bounded.

Escape sequences go; any other character that does not print (controls, direction marks, lone surrogates) becomes its escape.
"""

from __future__ import annotations

import json
import re
from typing import Any

from runbook.render.diagnostics import visible

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?|\x1b[ -/]*[0-~]"
)
LONGEST_TEXT = 2_000
LONGEST_LINE = 500
SLACK = 8
"""Escape sequences shrink away: so many times the bound is read before it is applied."""


def text_of(value: Any) -> str:
    """A value as text: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def one_line(value: Any, longest: int = LONGEST_TEXT) -> str:
    """One line of at most `longest` bytes."""
    text = text_of(value)[: longest * SLACK]
    if text.isprintable():  # then nothing of what follows would change it
        return cut(text, longest)
    text = ESCAPES.sub("", text)
    return cut(visible(" ".join(part for part in re.split(r"[\r\n\t\x0b\x0c\x85\u2028\u2029]+", text) if part)), longest)


def last_lines(text: str, most: int, longest: int = LONGEST_LINE) -> list[str]:
    """The last `most` lines, split on `\\n` and `\\r`, each at most `longest` bytes; blank ones at the end are left out."""
    tail = text[-most * longest * SLACK :].rstrip()
    lines = [line for line in re.split(r"\r\n|[\r\n]", tail)][-most:] if most else []
    return [cut(visible(ESCAPES.sub("", line[: longest * SLACK]).expandtabs(4)), longest) for line in lines]


def cut(text: str, longest: int) -> str:
    """At most `longest` UTF-8 bytes; a cut text ends in an ellipsis."""
    if len(text) <= longest and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= longest:
        return text
    return data[: max(0, longest - 3)].decode("utf-8", "ignore") + "…"
