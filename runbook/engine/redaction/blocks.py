"""Private key blocks: the only secret of several lines. Also one whose end, or whose beginning, was cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
LONGEST = 20_000
"""Characters of the largest key that is looked for."""
_LINES = re.compile(
    r"(?:(?:\\[nr]|[\s\"',+])*(?:[A-Za-z0-9+/=]{16,}|[A-Z][A-Za-z-]{2,30}: [^\r\n\\]{1,200}))+"
    r"(?:(?:\\[nr]|\s)+[A-Za-z0-9+/=]+(?=\s|\\|\Z))?"
)
"""Base64 and headers, and a last short line."""
_BASE64_LINE = re.compile(r"[\"' ]{0,8}[A-Za-z0-9+/=]{40,}(?:\s|\\[nr])+")
_LAST_LINE = re.compile(r"[\"' ]{0,8}[A-Za-z0-9+/=]+(?:\s|\\[nr])+")


def find_blocks(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """(start, end, kind, sure) of each block, markers included."""
    if "PRIVATE KEY" not in text:
        return
    begin = begun = BEGIN.search(text)
    while begin is not None:
        following = BEGIN.search(text, begin.end())
        most = min(following.start() if following else len(text), begin.end() + LONGEST)
        end = END.search(text, begin.end(), most) or _LINES.match(text, begin.end(), most) or begin
        yield begin.start(), end.end(), "private-key", True
        begin = following
    first = END.search(text)
    if first is not None and (begun is None or first.start() < begun.start()):
        start = _start_of_body(text, first.start())
        if start < first.start():
            yield start, first.end(), "private-key", True


def _start_of_body(text: str, end: int) -> int:
    """Where the lines of a key whose beginning is missing start: back over long lines of base64, the last of which may be short."""
    start = end
    for line in reversed(re.split(r"(?<=\n)|(?<=\\n)", text[max(0, end - LONGEST) : end])):
        if line and not (_BASE64_LINE.fullmatch(line) if start != end else _LAST_LINE.fullmatch(line)):
            break
        start -= len(line)
    return start
