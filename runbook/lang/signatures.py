"""Names of the functions of the expression language and how many arguments each takes: all that parsing needs of them."""

from __future__ import annotations

MANY = 10_000

ARITY: dict[str, tuple[int, int]] = {
    "len": (1, 1), "min": (1, MANY), "max": (1, MANY), "sum": (1, 1), "any": (1, 1), "all": (1, 1), "sorted": (1, 1), "abs": (1, 1),
    "round": (1, 2), "default": (2, 2), "get": (2, 3), "known": (1, 1), "quote": (1, 1), "raw": (1, 1), "match": (2, 2), "search": (2, 2),
    "lines": (1, 1), "json": (1, 1), "duration": (1, 1), "size": (1, 1), "basename": (1, 1), "env": (1, 2),
    "tensor_diff": (2, 4),
}  # fmt: skip
"""Least and most arguments."""
