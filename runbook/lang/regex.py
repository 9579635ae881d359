"""Regular expressions of playbooks, bounded as far as the standard library allows.

A match cannot be stopped once it runs, so the pattern is looked at before: its length, and a repetition whose whole body is
itself a repetition, as in `(a+)+`, which takes exponential time. What this does not see: overlapping alternatives such as
`(a|aa)+` and chains such as `.*.*.*x`, slow on long lines.
"""

from __future__ import annotations

import functools
import re
from typing import Any

MAX_PATTERN = 1000

try:
    from re import _parser as _sre  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _sre

_FLAGS = 0
_POSIX = re.compile(r"\[:(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit):\]")
"""A class as grep knows it. Python would look for its letters, and never find what was meant."""
_ENDLESS = 100
"""A repetition that may go on for as many is counted as endless."""


@functools.lru_cache(maxsize=512)
def compiled(pattern: str) -> tuple[re.Pattern[str] | None, str]:
    """(the compiled pattern, "") or (None, why it is refused)."""
    if len(pattern) > MAX_PATTERN:
        return None, f"the pattern has {len(pattern)} characters, more than {MAX_PATTERN}"
    if posix := _POSIX.search(pattern):
        return None, f"`{posix[0]}` is no class here: write `\\d` for digits, `\\s` for blanks, `\\w` for letters and digits"
    try:
        found = re.compile(pattern, _FLAGS)
        tree = _sre.parse(pattern, _FLAGS)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        return None, f"`{pattern[:60]}` is not a regular expression: {error}"
    if _explodes(tree, False):
        return None, f"`{pattern[:60]}` repeats a repetition, which can take forever: write `(a+)+` as `a+`"
    return found, ""


def _explodes(items: Any, repeated: bool) -> bool:
    """Is there an endless repetition that is alone in the body of an endless repetition, but for parts that may be empty?"""
    must = [item for item in items if not _may_be_empty(item)]
    for name, detail in items:
        endless = str(name) in ("MAX_REPEAT", "MIN_REPEAT") and (detail[1] == _sre.MAXREPEAT or detail[1] >= _ENDLESS)
        alone = not must or (len(must) == 1 and must[0][1] is detail)
        if endless and repeated and alone:
            return True
        for body in _bodies(detail):
            if _explodes(body, endless or (repeated and alone)):
                return True
    return False


def _bodies(detail: Any) -> list[Any]:
    """The sub-patterns of an item, whatever its shape: a group, a repetition, alternatives, a lookaround."""
    if isinstance(detail, _sre.SubPattern):
        return [detail]
    if isinstance(detail, (list, tuple)):
        return [body for part in detail for body in _bodies(part)]
    return []


def _may_be_empty(item: Any) -> bool:
    name, detail = item
    word = str(name)
    return word in ("AT", "ASSERT", "ASSERT_NOT") or (word.endswith("_REPEAT") and detail[0] == 0)
