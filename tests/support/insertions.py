"""Whether a patched file is the original with insertions, told without the transform's own code."""

from __future__ import annotations

import collections
import hashlib
import re

_FILLER = set(" \t\r\ntry:);")
"""What is left of our texts once the patterns are taken out: blanks, line ends, `try:`, closing brackets, semicolons."""


def fault(before: bytes, after: bytes, marker: str) -> str:
    """What is wrong with a patched file; empty when it compiles and the original is what is left without our texts."""
    try:
        compile(after, "patched.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"does not compile: {error}"
    text, rest = before.decode("latin-1"), after.decode("latin-1")
    for ours in _patterns(marker):
        rest = ours.sub("", rest)
    at = 0
    for line in text.splitlines(keepends=True):
        if rest.startswith(line, at):
            at += len(line)
            continue
        for character in line:
            found = rest.find(character, at)
            if found < 0:
                return f"lost text of `{line.strip()[:60]}`"
            at = found + 1
    left = collections.Counter(rest)
    left.subtract(collections.Counter(text))
    foreign = {character for character, count in left.items() if count} - _FILLER
    return f"holds more than insertions: {sorted(foreign)}" if foreign else ""


def _patterns(marker: str) -> list[re.Pattern[str]]:
    name = "_rb_" + hashlib.sha256(marker.encode()).hexdigest()[:8]
    return [
        re.compile(rf"(?s)# runbook probes {re.escape(marker)}.*?# runbook probes end"),
        re.compile(rf"{name}\.loaded\(0\)"),
        re.compile(rf"finally: {name}\.left[^\r\n]*"),
        re.compile(rf"(else: )?{name}\.out\[\d+\]\(None\)(; )?"),
        re.compile(rf" {name}\.out\[\d+\]\(\("),
        re.compile(rf"except: {name}\.failed\(\d+\); raise"),
        re.compile(rf"(; )?{name}\.left\(\d+\) and {name}\.hit\([^\r\n]*\)"),
        re.compile(rf"(; )?{name}\(\d+\) and {name}\.hit\(\d+, \{{\}}\)(; )?"),
    ]
