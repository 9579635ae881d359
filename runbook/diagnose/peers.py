"""hung/blocked_peer: a partner that is dead, stopped, silent or out of reach."""

from __future__ import annotations

from runbook.diagnose.actors import actors, knocks_here
from runbook.diagnose.calls import at_calls
from runbook.diagnose.deadlocks import knot_proof, knotted
from runbook.diagnose.execution import APART_S, Run, execution, peer_execution
from runbook.diagnose.family import accused, everyone, name, ranks
from runbook.diagnose.knots import process_of
from runbook.diagnose.motion import readings
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, excused, standstill, verdict
from runbook.diagnose.view import View
from runbook.diagnose.waiters import frozen_at, partner_of
from runbook.model.sample import ProcessSample, SocketSample
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis

CONNECT_S = 60.0
"""Collective libraries try to connect for about a minute by design, so a shorter attempt is only a suspicion."""


def blocked_peer(view: View) -> Diagnosis | None:
    """hung/blocked_peer: when a frozen thread reads from a partner that is dead or stopped, at two looks ≥ 10 s apart; or from one that, by
    its threads' system calls, can never send again; its own receive without a limit of time, in the call as at the socket;
    or, once the stall budget is spent, when a rank's first attempt to reach another host has no answer.

    its live twins: a slow download, of which only TCP counters tell; a partner that computes, sleeps, is stopped and let go on in turn, or
    waits for somebody else; one on another host that nobody can see; a stopped helper beside the partner that it reads from; an
    attempt of another program to connect, which the kernel gives up by itself; a partner that an alarm of its own will end.
    """
    if view.once(actors) or excused(view):
        return None
    gone = _dead_partner(view)
    if gone is not None:
        return gone
    lost = _unanswered(view)
    if lost is not None:
        return lost
    return _silent_for_good(view) if knotted(view) else None


def _silent_for_good(view: View) -> Diagnosis | None:
    """A main thread of a knot that reads from another process."""
    calls = view.once(at_calls)
    for run in view.once(accused):
        pid = run.process.pid
        call = calls.get((pid, pid))  # one that goes round is in none
        if call is None or call.call != "read":
            continue
        partner = next((one for peer in call.peers if peer != pid and (one := process_of(view, peer)) is not None), None)
        if partner is not None:
            return _silent_verdict(view, run, partner)
    return None


def _silent_verdict(view: View, run: Run, partner: ProcessSample) -> Diagnosis:
    text = f"no byte comes from the other end, where pid {partner.pid} `{partner.title[:60]}` stands still as well"
    return verdict(
        view,
        "blocked_peer",
        "blocked_peer",
        f"{name(view, run.process)} waits for a partner that sends nothing",
        accuse=partner,
        note="stands still while its partner waits",
        proofs=(Proof("data", "partner", partner.pid, text, run.seconds), knot_proof(view, run.frozen_s)),
        confidence="proven",
        next_looks=("look at the partner: its stack, its log", "`ss -tinp` shows when the last byte came"),
    )


def _dead_partner(view: View) -> Diagnosis | None:
    if view.once(stall).wall_s < APART_S or not at_rest(view):
        return None
    calls = view.once(at_calls)
    for run, place in frozen_at(view, ("recv", "pipe_read", "unix")):
        call = calls.get((run.process.pid, run.process.pid))
        partner = partner_of(view, run)
        if call is None or call.timed or run.seconds < APART_S or partner is None or not _is_down(view, partner):
            continue
        state = "stopped" if partner.state == "T" else "dead"
        text = f"the other end, pid {partner.pid} `{partner.title[:60]}`, is {state}"
        return verdict(
            view,
            "blocked_peer",
            "blocked_peer",
            f"{name(view, run.process)} waits for a partner that is {state}",
            accuse=partner,
            note=f"{state}, and its partner waits for it in {place.text}",
            proofs=(Proof("coordination", "partner_state", partner.state, text, run.seconds),),
        )
    return None


def _is_down(view: View, partner: ProcessSample) -> bool:
    """Whether it was stopped, or dead, at every look."""
    runs = [run for run in (*view.once(execution).runs, *view.once(peer_execution).runs) if run.process.pid == partner.pid]
    return partner.state == "Z" or any(run.frozen and run.states == {"T"} for run in runs)


def _unanswered(view: View) -> Diagnosis | None:
    """An attempt to connect that had no answer for a minute, though somebody waits for it."""
    clock = view.once(stall)
    looks = [(sample.t, {(one.pid, one.local, one.peer): one for one in value}) for sample, value in readings(view.samples, "sockets")]
    looks = [look for look in looks if look[0] >= clock.since]
    if len(looks) < 2 or not clock.over() or clock.wall_s < CONNECT_S or not view.once(standstill).has("data"):
        return None
    for ends, one in looks[-1][1].items():
        held = [t for t, table in looks if ends in table and table[ends].state == "SYN-SENT"]
        if knocks_here(view, one) or _tried_before(view, one) or not _is_of_a_rank(view, one.pid):
            continue
        if one.state == "SYN-SENT" and held[-1] - held[0] >= APART_S:
            return _unanswered_verdict(view, one, held[-1] - held[0])
    return None


def _is_of_a_rank(view: View, pid: int) -> bool:
    """Whether a rank connects: libraries of collectives ask the same address for ever. Another program may go on without."""
    return any(process.pid == pid for process in view.once(ranks).values())


def _tried_before(view: View, one: SocketSample) -> bool:
    """Whether somebody here tried the same address by another socket as well: it is tried again and again."""
    found = {
        each.local for _, table in readings(view.samples, "sockets") for each in table if each.peer == one.peer and each.state == "SYN-SENT"
    }
    return bool(found - {one.local})


def _unanswered_verdict(view: View, one: SocketSample, seconds: float) -> Diagnosis:
    process = next((each for each in view.once(everyone).values() if each.pid == one.pid), None)
    text = f"its attempt to reach {one.peer} from {one.local} has no answer for {format_duration(seconds)}"
    return verdict(
        view,
        "blocked_peer",
        "blocked_peer",
        f"{name(view, process) if process else f'pid {one.pid}'} cannot reach its partner",
        accuse=process,
        note=f"connects to {one.peer}",
        proofs=(Proof("coordination", "syn_sent", one.peer, text, seconds),),
        confidence="likely",
        next_looks=("is that address reachable, by the interface it uses?", "collective libraries take the interface from a variable"),
    )
