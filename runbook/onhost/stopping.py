"""Climbing a kill ladder without blocking: a generator that says how long it wants to wait before it is resumed."""

import time
from typing import Any, Callable, Dict, Generator, List, Sequence, Set, Tuple

from .kill import Target
from .ladder import Rung, parse_ladder

POLL_S = 0.05

Find = Callable[[], Set[Tuple[int, int]]]
Waiting = Generator[float, None, List[Dict[str, Any]]]


def climb(find: Find, ladder: Sequence[str]) -> Waiting:
    """Signal all that `find` names, (pid, start), rung by rung until it names nobody; returns what is left.

    Whoever appears meanwhile (a fork while the ladder is climbed) gets the rung's signal too.
    """
    for rung in parse_ladder(ladder):
        deadline = time.monotonic() + rung.wait_s
        signalled: Set[Tuple[int, int]] = set()
        while True:
            alive = find()
            if not alive:
                return []
            for found in alive - signalled:
                _signal(found, rung)
                signalled.add(found)
            rest = deadline - time.monotonic()
            if rest <= 0:
                break
            yield min(POLL_S, rest)
    return [_left(found) for found in sorted(find())]


def _signal(found: Tuple[int, int], rung: Rung) -> None:
    target = Target(*found)
    try:
        target.signal(rung.number)
    finally:
        target.close()


def _left(found: Tuple[int, int]) -> Dict[str, Any]:
    target = Target(*found)
    try:
        return target.left()
    finally:
        target.close()
