"""What the communicators say of their ranks: NCCL's RAS and torch's flight recorder, asked side by side."""

import functools
import time
from typing import Any, Dict, List, Optional, Tuple

from . import flight, procs, ras
from .sources import absent, blind, seen
from .together import together

LONGEST_S = 25.0  # a rank under load has taken 10 s for its first dump

Targets = List[Tuple[int, int, Optional[int]]]
SOURCES = {"ras": ras.look, "flight": flight.look}


def collectives(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """`args`: {targets: [[pid, start, rank or null], …], look, limit_s}. Answers an outcome of rows."""
    found = look_at(ctx, args["targets"], min(LONGEST_S, float(args.get("limit_s", 8.0))))
    number = int(args.get("look", 1))
    rows = [dict(row, source=name, look=number) for name, outcome in found.items() for row in outcome.get("value", ())]
    if rows:
        return seen(rows), b""
    reasons = "; ".join(outcome["reason"] for outcome in found.values())
    return (blind if any(outcome["type"] == "blind" for outcome in found.values()) else absent)(reasons), b""


OPS = {"collectives": collectives}


def look_at(ctx: Any, asked: Any, limit_s: float) -> Dict[str, Dict[str, Any]]:
    """Each source's outcome by its name."""
    living: Targets = [(int(pid), int(start), rank) for pid, start, rank in asked if procs.is_alive(int(pid), int(start))]
    living = [target for target in living if procs.is_visible(target[0], ctx.scope)]
    if not living:
        return {name: absent("no process of it is left") for name in SOURCES}
    tasks = [functools.partial(source, ctx, living, limit_s - 0.5) for source in SOURCES.values()]
    late = blind("no answer in %.0f s" % limit_s)
    answers = together(tasks, time.monotonic() + limit_s, late, lambda error: blind("%s: %s" % (type(error).__name__, error)))
    return {name: answers[at] for at, name in enumerate(SOURCES)}
