"""What stands where a secret stood: `***NAME***`, a declared name or the kind of a shape; and how to count them in a text."""

from __future__ import annotations

import re
from collections import Counter

MARK = re.compile(r"\*{3}([A-Za-z_][\w.-]{0,99})\*{3}")


def mark(name: str) -> str:
    """What is put there. Its length tells nothing about the secret's."""
    return f"***{name}***"


def marks(text: str) -> Counter[str]:
    """How many of which kind were masked in a text."""
    return Counter(MARK.findall(text))
