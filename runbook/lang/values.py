"""The two marker values of the expression language, and how values look to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT_CAP = 80
_ITEM_CAP = 5
_DEPTH_CAP = 3


class Unknown:
    """A value that could not be seen, and why. It is neither true nor false, and equal to nothing but itself."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"unknown ({self.reason})"


class Raw(str):
    """Text that goes into a shell line as it stands: what `raw(…)` and `quote(…)` give."""

    __slots__ = ()


def short(value: Any, depth: int = 0) -> str:
    """One line for people, cut: `"ready"`, `[1, 2, … 40 items]`, `unknown (skipped)`."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _short_text(value)
    if isinstance(value, int) and value.bit_length() > 1000:  # longer ones cannot be printed at all
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (int, float, Unknown)):
        return repr(value) if isinstance(value, Unknown) else f"{value}"
    shown = _ITEM_CAP if depth < _DEPTH_CAP else 0
    if isinstance(value, Mapping):
        return _short_items("{", [f"{key}: {short(value[key], depth + 1)}" for key in list(value)[:shown]], len(value), "}")
    if isinstance(value, (list, tuple)):
        return _short_items("[", [short(item, depth + 1) for item in value[:shown]], len(value), "]")
    return f"a {type(value).__name__}"


def kind(value: Any) -> str:
    """What a value is, in YAML's words: text, number, list, mapping, …"""
    for types, word in _KINDS:
        if isinstance(value, types):
            return word
    return "null" if value is None else type(value).__name__


def a_kind(value: Any) -> str:
    """The same with the value, for a sentence."""
    return "null" if value is None else f"a {kind(value)} ({short(value)})"


_KINDS: tuple[tuple[Any, str], ...] = (
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "text"),
    ((list, tuple), "list"),
    (Mapping, "mapping"),
    (Unknown, "unknown"),
)


def _short_text(text: str) -> str:
    cut = text[:_TEXT_CAP].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return f'"{shown}"' if len(text) <= _TEXT_CAP else f'"{shown}…" ({len(text)} characters)'


def _short_items(left: str, items: list[str], count: int, right: str) -> str:
    if count and not items:
        return f"{left}…{right}"
    more = f", … {count} items" if count > len(items) else ""
    return left + ", ".join(items) + more + right
