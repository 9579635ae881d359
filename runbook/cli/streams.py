"""stdout and stderr that take any text: what their encoding lacks is spelt out, never an error.

A text for people gets a plain look-alike (`->` for an arrow). JSON gets its own escape, so that the object stays the same object.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

PEOPLE = "runbook-people"
JSON = "runbook-json"
PLAIN = {
    **dict.fromkeys("–—−‐‑", "-"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
    **dict(zip("▁▂▃▄▅▆▇█", "_.-~=+*#", strict=True)),
    "…": "...",
    "→": "->",
    "↔": "<->",
    "✓": "+",
    "✗": "x",
    "×": "x",
    "·": ".",
    "≥": ">=",
    "≤": "<=",
    "\u2060": "",
}


class _Ascii(io.TextIOWrapper):
    """A stream that writes ASCII alone. It calls itself UTF-8, else click would put a UTF-8 stream of its own in its place."""

    handler = PEOPLE

    def write(self, text: str) -> int:
        super().write(text.encode("ascii", self.handler).decode("ascii"))
        return len(text)


def prepare(argv: list[str]) -> None:
    """Make both streams total. A stdin that was closed by whoever started us has nothing to say."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open to the end
    codecs.register_error(PEOPLE, lambda problem: _spelt(problem, PLAIN))
    codecs.register_error(JSON, lambda problem: _spelt(problem, {}))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us: its number must not become that of a file or a socket
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open to the end
            continue
        if not isinstance(stream, io.TextIOWrapper):
            continue  # a test's or a caller's own
        handler = JSON if name == "stdout" and "--json" in argv else PEOPLE
        if codecs.lookup(stream.encoding).name == "ascii":
            buffering = stream.line_buffering
            plain = _Ascii(stream.detach(), encoding="utf-8", errors=handler, line_buffering=buffering)
            plain.handler = handler
            setattr(sys, name, plain)
        else:
            stream.reconfigure(errors=handler)


def _spelt(problem: UnicodeError, alike: dict[str, str]) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    text = problem.object[problem.start : problem.end]
    return "".join(alike[char] if char in alike else escaped(char) for char in text), problem.end


def escaped(char: str) -> str:
    """JSON's escape of a character: beyond the first plane a pair of them."""
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
