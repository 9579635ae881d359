"""Markdown's small parts. Every text goes through one of them: no host text can open a tag, close a fence, or call a person.

GitHub mentions people at `@name` and GitLab obeys `/close` at the start of a line, also in text that somebody else's machine wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from runbook.render.inert import LONGEST_TEXT, last_lines, one_line

MARKUP = re.compile(r"([\\`*_{}\[\]<>|~$&])")
REFERENCE = re.compile(r"(?<![\w.])(?:@(?=\w)|#(?=\d))")
ADDRESS = re.compile(r"(?i)\bwww(?=\.)|(?:https?|ftp)(?=://)")
"""What a forge makes a link of by itself: with a backslash before its point or colon it reads and copies the same, and leads nowhere."""
HARMLESS = re.compile(r"[A-Za-z0-9 ,;()=%+-]*").fullmatch
"""Text that no rule below touches."""
SPAN = re.compile(r"((?<!`)`[^`]+`(?!`))")
"""What our own sentences mark as code."""
JOINER = "\u2060"
"""A word joiner: invisible, and `@` before it names nobody."""
OPENS_A_BLOCK = re.compile(r"^(?:[#+\-=/:!%?]|\d+(?=[.)]))")
LONGEST_FENCE = 200
"""Lines of one code block."""


def cell(value: Any, longest: int = LONGEST_TEXT) -> str:
    """Text for a table cell: one line, markup escaped, nobody mentioned; what stands between two backticks stays code."""
    line = one_line(value, longest)
    if HARMLESS(line):
        return line
    parts = SPAN.split(line)
    return "".join(part.replace("|", "\\|") if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    if HARMLESS(text):
        return text
    text = ADDRESS.sub(r"\g<0>\\", MARKUP.sub(r"\\\1", text))
    return REFERENCE.sub(lambda found: found[0] + JOINER, text)


def prose(value: Any, longest: int = LONGEST_TEXT) -> str:
    """Text for a paragraph or a list item: as a cell, and it opens no heading, list, table or command."""
    parts = SPAN.split(one_line(value, longest).strip())
    text = "".join(part if place % 2 else _escaped(part) for place, part in enumerate(parts))
    found = OPENS_A_BLOCK.match(text)
    if found is None:
        return text
    return f"{found[0]}\\{text[found.end() :]}" if found[0].isdigit() else f"\\{text}"


def code(value: Any, longest: int = LONGEST_TEXT) -> str:
    """A code span that its own content cannot close. Not for table cells: a pipe would end those."""
    text = one_line(value, longest) or " "
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(text: str, language: str = "text", *, most: int = LONGEST_FENCE, longest: int = LONGEST_TEXT) -> str:
    """A code block of the last `most` lines, which its own content cannot close."""
    body = "\n".join(last_lines(text, most, longest))
    widest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    ticks = "`" * max(3, widest + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], longest: int = LONGEST_TEXT) -> str:
    """A table; its head is ours, its cells are anybody's."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cell(value, longest) for value in row) + " |" for row in rows)])


def bullets(texts: Sequence[Any], most: int, longest: int = LONGEST_TEXT) -> str:
    """A list of the first `most`; the rest is counted."""
    shown = [f"- {prose(text, longest)}" for text in texts[:most]]
    return "\n".join([*shown, *([f"- and {len(texts) - most:,} more"] if len(texts) > most else [])])


def details(summary: str, body: str) -> str:
    """A part that unfolds where the tracker knows how. `summary` is HTML: escaped by the caller."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
