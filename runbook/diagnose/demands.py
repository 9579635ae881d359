"""hung/unsatisfiable: it waits for what cannot come."""

from __future__ import annotations

import re

from runbook.diagnose.actors import actors, sockets, tree
from runbook.diagnose.execution import APART_S
from runbook.diagnose.lines import TimedLine
from runbook.diagnose.motion import readings
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, standstill, verdict
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.verdict import Diagnosis

DEMANDS = re.compile(
    r"[Ww]aiting for creating a placement group"
    r"|[Nn]o available node types can fulfill"
    r"|[Ii]nsufficient (?:nvidia\.com/gpu|GPUs?)"
    r"|[Cc]annot be scheduled right now|[Rr]equired GPUs? exceeds|[Nn]ot enough (?:free |available )?GPUs?"
)
"""What schedulers print again and again while they wait for more than there is."""
COUNT = re.compile(r"['\"]?(?:GPU|nvidia\.com/gpu)['\"]?\s*[:=]\s*(\d+(?:\.\d+)?)")


def unsatisfiable(view: View) -> Diagnosis | None:
    """hung/unsatisfiable: when the log has asked again and again for GPUs until the stall budget is spent, the host has fewer than it asks
    for, nothing moves, and it is connected with nobody who could bring more.

    its live twins: a scheduler that waits for GPUs which another job gives back, a cluster that another host joins, any first such lines.
    """
    clock = view.once(stall)
    asked = [timed for timed in view.lines if DEMANDS.search(timed.line.text)]
    if len(asked) < 2 or asked[-1].t - asked[0].t < APART_S or view.once(actors) or excused(view) or not clock.over():
        return None
    wanted, have = _wanted(asked), _have(view)
    if wanted is None or have is None or wanted <= have or _in_cluster(view) or not view.once(standstill).has("data"):
        return None
    numbers = f": it wants {wanted:g} GPUs, this host has {have}"
    text = f"{len(asked)} lines ask for what is not given, the last: {quote(asked[-1].line.text)[:160]}{numbers}"
    return verdict(
        view,
        "unsatisfiable",
        "unsatisfiable",
        "it waits for more than there is",
        accuse=view.main,
        note="waits for GPUs",
        proofs=(Proof("coordination", "demand", wanted, text, asked[-1].t - asked[0].t),),
        confidence="likely",
        next_looks=("compare the parallel sizes that it was started with and the GPUs of the cluster",),
    )


def _in_cluster(view: View) -> bool:
    """Whether it speaks with processes outside its tree: a host's GPUs are not the cluster's."""
    ours = {process.pid for process in tree(view)}
    return any(one.state == "ESTAB" and one.peer_pid not in ours for one in sockets(view))


def _wanted(asked: list[TimedLine]) -> float | None:
    numbers = [float(number) for number in COUNT.findall(asked[-1].line.text)]
    return sum(numbers) if numbers else None


def _have(view: View) -> int | None:
    found = list(readings(view.samples, "gpus"))
    return len(found[-1][1]) if found else None
