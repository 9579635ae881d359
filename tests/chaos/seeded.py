"""The command line of trials that are made from their seeds, each with its `faults`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeVar


class Judged(Protocol):
    """A trial that is over. `faults`: what did not hold."""

    @property
    def faults(self) -> tuple[str, ...]: ...


T = TypeVar("T", bound=Judged)


def main(about: str | None, trials: Callable[[range, int], list[T]], table: Callable[[list[T]], str], kills: int, at_once: int) -> int:
    """Print the table; 1 when anything did not hold. `kills` and `at_once` are what is done where nothing else is said."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=1, help="of the first trial; the others follow")
    parser.add_argument("--at-once", type=int, default=at_once)
    args = parser.parse_args()
    began = time.monotonic()
    results = trials(range(args.seed, args.seed + args.kills), args.at_once)
    took = f"{len(results)} trials in {time.monotonic() - began:.0f} s, {args.at_once} side by side"
    sys.stdout.write(f"{table(results)}\n\n{took}\n")
    return int(any(result.faults for result in results))
