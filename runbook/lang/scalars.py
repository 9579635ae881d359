"""What a plain YAML scalar means: the YAML 1.2 core schema, without its traps.

`yes`, dates and `1_000` are text; `012`, `.inf`, `.nan` and integers beyond 2^63 are refused.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

MAX_INT = 2**63

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_OLD_BOOLEANS = {
    form: meaning
    for word, meaning in (("yes", "true"), ("no", "false"), ("on", "true"), ("off", "false"))
    for form in (word, word.title(), word.upper())
}
"""What YAML 1.1 read as booleans."""
_NUMBER_START = frozenset("-+.0123456789")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class ScalarProblem(NamedTuple):
    """Why a scalar is refused, or, as a warning, what it does not mean."""

    code: str
    summary: str
    hint: str
    warning: bool = False


def resolve(text: str) -> tuple[Any, ScalarProblem | None]:
    """The value of a plain scalar. A refused one keeps its text as value."""
    if text in _WORDS:
        return _WORDS[text], None
    if text in _OLD_BOOLEANS:
        hint = f'this is the text "{text}" in YAML 1.2; write {_OLD_BOOLEANS[text]} or quote it'
        return text, ScalarProblem("text-not-boolean", f"`{text}` is text, not a boolean", hint, warning=True)
    if text[0] not in _NUMBER_START:
        return text, None
    if _INT.fullmatch(text):
        return _integer(text)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return _bounded(int(text, 0), text) if len(text) < 40 else _too_large(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return (value, None) if math.isfinite(value) else _not_finite(text)
    return _not_finite(text) if _SPECIAL.fullmatch(text) else (text, None)


def _integer(text: str) -> tuple[Any, ScalarProblem | None]:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0":
        plain = text.replace(digits, digits.lstrip("0") or "0")
        summary = f"`{_cut(text)}` has a leading zero, which some read as octal"
        return text, ScalarProblem("leading-zero", summary, f"write {_cut(plain)} or '{_cut(text)}'")
    return _bounded(int(text), text) if len(digits) < 40 else _too_large(text)


def _bounded(value: int, text: str) -> tuple[Any, ScalarProblem | None]:
    return (value, None) if abs(value) <= MAX_INT else _too_large(text)


def _too_large(text: str) -> tuple[str, ScalarProblem]:
    return text, ScalarProblem(
        "number-too-large", f"`{_cut(text)}` is an integer larger than 2^63", f"to make it text, quote it: '{_cut(text)}'"
    )


def _not_finite(text: str) -> tuple[str, ScalarProblem]:
    return text, ScalarProblem("not-finite", f"`{_cut(text)}` is not a finite number", f"to make it text, quote it: '{_cut(text)}'")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
