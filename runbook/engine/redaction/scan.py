"""What in a text looks like a secret, and the text without it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from runbook.engine.redaction.blocks import find_blocks
from runbook.engine.redaction.named import find_named
from runbook.engine.redaction.shapes import CUT, OTHERS, PREFIXED, Shape, compiled
from runbook.engine.redaction.values import has_digit_and_letter
from runbook.model.masked import MARK, mark

BY_NAME = frozenset({"api-key", "credentials", "password", "secret", "token"})
LESSER = BY_NAME | {"cut-token", "authorization", "bearer"}
"""Kinds that say less of a value than a vendor's: where that one is allowed, they are."""
KINDS = tuple(sorted({shape.kind for shape in (*PREFIXED, *OTHERS)} | BY_NAME | {"private-key", "cut-token"}))
_NO_DASH = {ord("_"): None, ord("-"): None}
_LONG = re.compile(r"[A-Za-z0-9_-]{15,}")
"""Every token with a prefix holds such a run, with a digit or a capital in it; few other texts do."""
_LOWER = {ord(char): char.lower() for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
ROUNDS = 4
"""A masked text is looked at again, because what stands beside a mark may look different: it comes to rest at once or never."""
CUT_WINDOW = 300
SHORTEST = 8
LONGEST_KNOWN = 120


@functools.lru_cache(maxsize=8192)
def _is_clean(text: str) -> bool:
    return not find(text)


def is_short_and_clean(text: str) -> bool:
    """Whether it is one of the short texts that stand in every event, and known to hold nothing."""
    return len(text) < SHORTEST or (len(text) <= LONGEST_KNOWN and _is_clean(text))


class Found(NamedTuple):
    """A piece of text that looks like a secret. `sure`: nothing else looks like this."""

    start: int
    end: int
    kind: str
    sure: bool = True


def find(text: str, *, sure_only: bool = False, allow: Collection[str] = ()) -> list[Found]:
    """All pieces, in order, none touching another."""
    if len(text) < SHORTEST:
        return []
    pieces = [piece for piece in _all(text) if piece.sure or not sure_only]
    if allow:
        allowed = [piece for piece in pieces if piece.kind in allow]
        pieces = [piece for piece in pieces if piece.kind not in allow and not (piece.kind in LESSER and _touches(piece, allowed))]
    if not pieces:
        return []
    marks = [Found(*found.span(), "") for found in MARK.finditer(text)] if "***" in text else []
    pieces = [piece for piece in pieces if not _touches(piece, marks)]
    return _merged(sorted(pieces, key=lambda piece: (piece.start, -piece.end)))


def _touches(piece: Found, others: list[Found]) -> bool:
    return any(other.start < piece.end and piece.start < other.end for other in others)


def masked(
    text: str, *, sure_only: bool = False, allow: Collection[str] = (), count: Callable[[Found, str], None] = lambda found, text: None
) -> str:
    """The text with a mark for each piece; `count` is told of each, with the text that it was found in. Masking twice is masking once."""
    for _ in range(ROUNDS):
        pieces = find(text, sure_only=sure_only, allow=allow)
        if not pieces:
            break
        out, at = [], 0
        for piece in pieces:
            count(piece, text)
            out += [text[at : piece.start], mark(piece.kind)]
            at = piece.end
        text = "".join([*out, text[at:]])
    return text


def _all(text: str) -> Iterator[Found]:
    low = text.lower()
    if len(low) != len(text):  # a few letters of other scripts grow
        low = text.translate(_LOWER)
    prefixed = any(not (run.islower() and run.translate(_NO_DASH).isalpha()) for run in _LONG.findall(text))
    for shape in (*PREFIXED, *OTHERS) if prefixed else OTHERS:
        if shape.needle in low:
            yield from _shaped(shape, text)
    for piece in find_named(text, low):
        yield Found(*piece)
    for piece in find_blocks(text):
        yield Found(*piece)
    yield from _cut(text)


def _shaped(shape: Shape, text: str) -> Iterator[Found]:
    pattern = compiled(shape.pattern)
    group: int | str = "v" if "v" in pattern.groupindex else 0
    tested: int | str = "body" if "body" in pattern.groupindex else group
    for found in pattern.finditer(text):
        if shape.passes is None or shape.passes(found[tested]):
            yield Found(*found.span(group), shape.kind)


def _cut(text: str) -> Iterator[Found]:
    """A token that the end of the text cuts: its rest is not here, so less of it must do."""
    found = CUT.search(text, max(0, len(text) - CUT_WINDOW))
    if (
        found is not None
        and has_digit_and_letter(found["body"])
        and any(map(str.isupper, found["body"]))
        and any(map(str.islower, found["body"]))
    ):
        yield Found(*found.span(), "cut-token")


def _merged(pieces: list[Found]) -> list[Found]:
    """Overlapping pieces as one, of the first one's kind; a vendor's kind goes before one that only a name gave."""
    out: list[Found] = []
    for piece in pieces:
        if out and piece.start < out[-1].end:
            last = out[-1]
            kind = piece.kind if last.kind in BY_NAME else last.kind
            out[-1] = Found(last.start, max(last.end, piece.end), kind, last.sure or piece.sure)
        else:
            out.append(piece)
    return out
