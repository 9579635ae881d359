"""What somebody probably meant to type."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMED = 16
"""Longer lists of allowed words help nobody."""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The closest of the known words, or None when nothing is close."""
    # difflib costs 10 ms and only a playbook with a mistake needs it.
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def suggestion(word: str, known: Iterable[str], prefix: str = "") -> str | None:
    """A hint: the closest known word, else all of them when they are few."""
    words = sorted(known)
    close = nearest(word, words)
    if close is not None:
        return f"did you mean `{prefix}{close}`?"
    if words and len(words) <= MOST_NAMED:
        return "known: " + ", ".join(f"`{prefix}{item}`" for item in words)
    return None
