"""hung/deadlock: every thread that matters waits for another one here."""

from __future__ import annotations

from runbook.diagnose.circles import circle
from runbook.diagnose.execution import Run
from runbook.diagnose.family import name
from runbook.diagnose.ranks import stack_groups
from runbook.diagnose.standstill import proven, standstill, tokens_stand, verdict
from runbook.diagnose.turning import all_in_collective
from runbook.diagnose.view import View
from runbook.diagnose.waiters import frozen_at, last_in_chain, stuck_at
from runbook.model.verdict import Diagnosis


def deadlock(view: View) -> Diagnosis | None:
    """hung/deadlock: when the stall budget is spent, every main thread that matters executed nothing, no byte moved, nobody works, and
    threads stand at each other's locks with nobody left to free them, or a main thread is in a wait that somebody here would have to end.

    its live twins: a main thread that waits while another reads or computes; an idle server; a sleep that ends by itself; a main thread
    that joins a thread which sleeps, receives or waits for a child; an event, signal or semaphore that comes from outside.
    """
    stuck = frozen_at(view, ("lock", "flock", "collective", "child", "pipe_write", "driver", "waits", "tty"))
    known = view.once(circle) or view.once(tokens_stand) or any(place.kind == "collective" for _, place in stuck)
    if not known:
        stuck = [(run, place) for run, place in stuck if place.kind not in ("lock", "waits")]
    if all_in_collective(view):
        stuck += stuck_at(view, view.once(standstill).spinning)
    confidence = proven(view) if stuck else None
    if confidence is None or not view.once(standstill).has("execution"):
        return None
    groups = view.once(stack_groups)
    odd = groups.odd if groups is not None else None
    run, place = next((one for one in stuck if _is_rank(view, one[0], odd)), None) or next(
        (o for o in stuck if o[1].kind == "lock"), stuck[0]
    )
    culprit = last_in_chain(view, run) if groups is None or odd is not None else None
    return verdict(
        view,
        "deadlock",
        "deadlock",
        f"{name(view, run.process)} waits for what nobody here will do",
        accuse=culprit,
        note=f"waits in {place.text}",
        confidence=confidence,
    )


def _is_rank(view: View, run: Run, rank: int | None) -> bool:
    return rank is not None and run.process.rank == rank
