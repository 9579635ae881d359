"""Our own Markdown, block by block, for trackers with another markup.

Only what the transcript's renderer writes is understood; anything else stays as the text it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Union

import msgspec

BLANK = "\u200b"
"""A zero-width space: a word stays readable and is no longer markup."""
JOINER = "\u2060"
"""What the renderer puts after `@`: needed on forges only."""
_FENCE = re.compile(r"^(`{3,}|~{3,})\s*([\w+-]*)\s*$")
_RULE = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")
_SPAN = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_CELLS = re.compile(r"(?<!\\)\|")
_TAGS = re.compile(r"^</?(?:details|summary)[^>]*>|</summary>$")


class Heading(msgspec.Struct, frozen=True, tag=True):
    """`level` 1 to 6."""

    level: int
    text: str


class Code(msgspec.Struct, frozen=True, tag=True):
    """A fenced block."""

    text: str


class Table(msgspec.Struct, frozen=True, tag=True):
    """Cells as plain text; the first row is the head."""

    rows: list[list[str]]


class Bullets(msgspec.Struct, frozen=True, tag=True):
    """A flat list."""

    items: list[str]


class Text(msgspec.Struct, frozen=True, tag=True):
    """A paragraph."""

    text: str


Block = Union[Heading, Code, Table, Bullets, Text]


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks of a transcript, inline markup removed."""
    lines = markdown.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        start = at
        if found := _FENCE.match(line):
            at += 1
            while at < len(lines) and not (lines[at].startswith(found[1]) and not lines[at].strip("`~ ")):
                at += 1
            yield Code("\n".join(lines[start + 1 : at]))
            at += 1
        elif line.startswith("|"):
            at = _while(lines, at, "|")
            yield Table([_cells(row) for row in lines[start:at] if not _RULE.match(row)])
        elif line.startswith("- "):
            at = _while(lines, at, "- ")
            yield Bullets([plain(item[2:]) for item in lines[start:at]])
        elif line.startswith("#") and line.lstrip("#").startswith(" "):
            yield Heading(min(6, len(line) - len(line.lstrip("#"))), plain(line.lstrip("# ")))
            at += 1
        else:
            text = plain(_TAGS.sub("", line.removeprefix("> ")).strip())
            if text:
                yield Text(text)
            at += 1


def _while(lines: list[str], at: int, prefix: str) -> int:
    while at < len(lines) and lines[at].startswith(prefix):
        at += 1
    return at


def _cells(row: str) -> list[str]:
    return [plain(cell.strip()) for cell in _CELLS.split(row.strip().strip("|") if not row.rstrip().endswith("\\|") else row.strip()[1:])]


def plain(text: str) -> str:
    """Inline Markdown as text: code spans by their content, escapes and emphasis removed elsewhere."""
    out, at = [], 0
    for span in _SPAN.finditer(text):
        content = span[2]
        out += [_unescaped(text[at : span.start()]), content.strip(" ") if content.strip(" `") != content.strip(" ") else content]
        at = span.end()
    return "".join([*out, _unescaped(text[at:])]).replace(JOINER, "")


def _unescaped(text: str) -> str:
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", re.sub(r"(?<!\\)\*\*", "", text))
