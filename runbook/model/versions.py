"""Is a version inside a range, as in `>=0.4.6,<=0.5.23`? Numbers only: what follows them (rc1, post2, +cu128) is not compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

_PART = re.compile(r"([<>]=?|==)(\d+(?:\.\d+)*)")


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; empty when it begins with none."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version.strip().removeprefix("v"))
    return tuple(map(int, found[0].split("."))) if found else ()


def outside(version: str, wanted: str) -> bool:
    """Whether a version is certainly outside of a range; what cannot be read is not."""
    mine = numbers(version)
    return bool(mine) and not all(_holds(mine, sign, numbers(bound)) for sign, bound in _PART.findall(wanted))


def unknown_versions(known: Mapping[str, str], installed: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(distribution, version that is installed, range that is known) of those that are outside."""
    return [
        (name, str(installed[name]), wanted)
        for name, wanted in known.items()
        if name in installed and outside(str(installed[name]), wanted)
    ]


def _holds(mine: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    """Compared as long as the bound is, so `<=0.5` holds for 0.5.3."""
    pairs = list(itertools.zip_longest(mine, bound, fillvalue=0))[: max(len(bound), 1)]
    order = next(((a > b) - (a < b) for a, b in pairs if a != b), 0)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0, "==": order == 0}[sign]
