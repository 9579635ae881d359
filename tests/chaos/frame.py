"""What a chaos scenario is: a name and a function that makes one fault and tells how it came out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """How one fault came out. `left`: what stays of it, on the host or here. `note`: whatever else a reader should know."""

    ok: bool
    verdict: str
    seconds: float
    left: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Scenario:
    """One fault. `play` gets its own random numbers and an empty folder. `needs` says why it cannot be played here, or nothing."""

    name: str
    play: Callable[[random.Random, Path], Outcome]
    needs: Callable[[], str] = lambda: ""
    repeat: int = 1
    """How often a whole run plays it, each time with other random numbers."""
