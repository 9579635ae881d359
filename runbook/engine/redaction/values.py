"""Does a value look like a secret? Not by what it is called: by its characters."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

from runbook.model.masked import MARK

HASH = re.compile(r"(?:sha(?:1|256|384|512)[:-])?(?:0x)?[0-9a-fA-F]{7,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""A git hash, a file's digest, a UUID: evidence, whatever stands before it, unless its name says that it is a key."""
NUMBER = re.compile(r"[-+]?[\d.,_:eEx]+[KMGTkmgt]?(?:i?B)?")
PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\].*")
STANDS_FOR_ONE = re.compile(
    r"\$.*|%\w+%|<.*|\{.*|\[.*|\([a-z]+\)?|[\w-]{0,12}(?:\*{3,}|\.{3}|…|x{4,}|X{4,})[\w-]{0,12}|[*•xX.…-]+"
    r"|(?i:none|null|nil|true|false|yes|no|empty|unset|not[ _-]?(?:set|needed|used|required|found)|required|missing"
    r"|default|redacted|masked|hidden|dummy|example|changeme|your.*|my[-_]?(?:key|token|secret|password)|env:.*|file:.*|cmd:.*|secret:.*|str|bytes|string|optional|invalid|incorrect)"
)
"""Words that stand where a secret would."""
CODE = re.compile(r"[a-z_]+(?:\.[a-z_]+)+|[A-Za-z_][\w.]*[(\[].*|(?:[a-z]+_)*(?:key|token|secret|password|passwd|credentials?)s?")
"""An expression of a program that a traceback shows: `self.args.api_key`, `os.environ[…]`, `hf_token`."""


def is_plain(value: str) -> bool:
    """A literal value, of any characters: not masked already, no place holder, no number, no path, no code."""
    return not (
        MARK.search(value) or NUMBER.fullmatch(value) or PATH.fullmatch(value) or STANDS_FOR_ONE.fullmatch(value) or CODE.fullmatch(value)
    )


def has_digit_and_letter(value: str) -> bool:
    """Plain, and no word of a language."""
    return is_plain(value) and any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


def is_random(value: str) -> bool:
    """Long and of mixed characters: what a generator of keys makes.

    The name of a file, a module or a model is made of words: between its dashes and dots nothing is long and mixed.
    """
    if len(value) < 16 or not has_digit_and_letter(value) or entropy(value) < 3.0:
        return False
    run = max(re.split(r"[^A-Za-z0-9]+", value), key=len)
    return len(run) >= 10 and _changes(run) / len(run) >= 0.25


def is_hash(value: str) -> bool:
    """A digest or a UUID."""
    return HASH.fullmatch(value) is not None


def entropy(value: str) -> float:
    """Bits per character by the value's own frequencies: 4.0 for 16 characters that all differ."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def _changes(value: str) -> int:
    """How often the kind of character changes: digit, capital, small letter, other."""
    kinds = [0 if char.isdigit() else 1 if char.isupper() else 2 if char.isalpha() else 3 for char in value]
    return sum(a != b for a, b in itertools.pairwise(kinds))
