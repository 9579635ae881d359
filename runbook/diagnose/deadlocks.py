"""hung/deadlock: every thread that matters waits for another one here."""

from __future__ import annotations

from runbook.diagnose.actors import in_flight, sockets
from runbook.diagnose.circles import circle, tied
from runbook.diagnose.execution import Run
from runbook.diagnose.family import accused, name, rank_of, ranks_elsewhere
from runbook.diagnose.places import NOWHERE, places
from runbook.diagnose.ranks import looked_after_only, outsiders_stand, stack_groups
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, proven, standstill, tokens_stand, verdict
from runbook.diagnose.turning import all_in_collective
from runbook.diagnose.view import View
from runbook.diagnose.waiters import frozen_at, last_in_chain, stuck_at
from runbook.model.verdict import Diagnosis

KNOT_S = 12.0
"""Without any progress for so long, a knot is told: it cannot come undone."""


def deadlock(view: View) -> Diagnosis | None:
    """hung/deadlock: when by its threads' system calls every main thread that matters can only be woken by threads which can never go on;
    or when the stall budget is spent, every such thread executed nothing, no byte moved, nobody works, and threads stand at each other's
    locks with nobody left to free them, or in a collective which all that are outside of it can never reach.

    its live twins: a main thread that waits while another reads or computes; an idle server; a sleep that ends by itself; a main thread
    that joins a thread which sleeps, receives or waits for a child; an event, signal or semaphore that comes from outside; a rank in a
    collective while another of its group is not seen here.
    """
    if knotted(view):
        return _knot_verdict(view)
    stuck = frozen_at(view, ("lock", "collective", "driver", "waits"))
    in_collective = any(place.kind == "collective" for _, place in stuck) and outsiders_stand(view) and not _may_be_fed(view)
    if not (view.once(circle) or (view.once(tokens_stand) and not view.once(ranks_elsewhere)) or in_collective):
        stuck = [(run, place) for run, place in stuck if place.kind == "driver"]
    if all_in_collective(view) and not _may_be_fed(view):
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


def _may_be_fed(view: View) -> bool:
    """Whether ranks in a collective may simply wait for the next request. With one open they would have it."""
    return not in_flight(view) and not looked_after_only(view)


def knotted(view: View) -> bool:
    """Whether nothing can ever end the waits of the server's main threads. One that listens may be left alone by all who could ask it."""
    if view.once(stall).wall_s < KNOT_S or not view.once(tied) or not at_rest(view):
        return False
    return in_flight(view) or not any(one.state == "LISTEN" for one in sockets(view))


def knot_proof(view: View, seconds: float) -> Proof:
    """What was seen of it."""
    text = "by its system calls each of these threads waits without a limit of time, and only for threads that wait so themselves"
    return Proof("coordination", "knot", len(view.once(accused)), text, seconds)


def _knot_verdict(view: View) -> Diagnosis:
    run = view.once(accused)[0]
    place = view.once(places).get(run.key, NOWHERE)
    return verdict(
        view,
        "deadlock",
        "deadlock",
        f"{name(view, run.process)} waits for what nobody here can do any more",
        accuse=last_in_chain(view, run),
        note=f"waits in {place.text}" if place.text else "can never go on",
        proofs=(knot_proof(view, run.frozen_s),),
        confidence="proven",
    )


def _is_rank(view: View, run: Run, rank: int | None) -> bool:
    return rank is not None and rank_of(view, run.key) == rank
