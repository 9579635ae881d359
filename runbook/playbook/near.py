"""What somebody probably meant to type."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

MOST_NAMED = 16
"""Longer lists of allowed words help nobody."""


_AS_NEAR = 0.15
"""Difference of difflib's ratio below which two words with as many slips are both named."""


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known words that are nearest by slips of the fingers: one, or a few that are as near as each other."""
    # difflib costs 10 ms and only a playbook with a mistake needs it.
    import difflib

    close = difflib.get_close_matches(word, list(known), n=8, cutoff=cutoff)
    slips = {one: _slips(word, one) for one in close}
    best = [one for one in close if slips[one] == min(slips.values())]
    alike = {one: difflib.SequenceMatcher(None, one, word).ratio() for one in best}
    return [one for one in best if alike[one] > alike[best[0]] - _AS_NEAR]


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The closest of the known words, or None when nothing is close."""
    return next(iter(closest(word, known, cutoff)), None)


def not_given(required: Iterable[str], given: Collection[object], known: Container[object]) -> list[str]:
    """Required names that are not given, without those that a given name which is not known is a slip for: that is one mistake, not two."""
    missing = [name for name in required if name not in given]
    meant = {nearest(str(name), missing) for name in given if name not in known} if missing else set()
    return [name for name in missing if name not in meant]


def suggestion(word: str, known: Iterable[str], prefix: str = "") -> str | None:
    """A hint: the closest known word, or two as close as each other; else all of them when they are few."""
    words = sorted(known)
    head, colon, rest = word.partition(":") if ":" in word else word.partition(" ")
    if head in words and rest.strip():
        return f"write `{head}: {rest.strip()[:60]}`" + (": a blank is missing" if colon == ":" else ": a colon is missing")
    close = closest(word, words)
    if close:
        return "did you mean " + " or ".join(f"`{prefix}{one}`" for one in close[:2]) + "?"
    if words and len(words) <= MOST_NAMED:
        return "known: " + ", ".join(f"`{prefix}{item}`" for item in words)
    return None


def _slips(one: str, other: str) -> int:
    """Letters left out, put in, replaced, or two swapped, from one word to the other (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            best = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                best = min(best, before[column - 2] + 1)
            now.append(best)
        before, last = last, now
    return last[-1]
