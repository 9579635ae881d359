"""hung/blocked_peer: a partner that is dead, stopped, silent or out of reach."""

from __future__ import annotations

from runbook.diagnose.actors import actors, knocks_here, sockets
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

KERNEL_S = 110.0
"""An attempt that the kernel itself gave up was seen for about so long: it repeats the first packet for 127 s, less two looks."""
ATTEMPTS = 2


def blocked_peer(view: View) -> Diagnosis | None:
    """hung/blocked_peer: when a frozen thread reads from a partner that is dead or stopped, at two looks ≥ 10 s apart; or from one that, by
    its threads' system calls, can never send again; its own receive without a limit of time, in the call as at the socket;
    or, and then only likely, when the kernel gave up a rank's attempts to reach an address of another host twice, each after two minutes.

    its live twins: a slow download, of which only TCP counters tell; a partner that computes, sleeps, is stopped and let go on in turn, or
    waits for somebody else; one on another host that nobody can see; a stopped helper beside the partner that it reads from; an
    attempt to reach a machine that still boots, which the kernel repeats for two minutes and the library for as long as it was told; a
    partner that an alarm of its own will end.
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
    """An address that did not answer a rank for as long as the kernel asks, twice, and that is asked again."""
    clock = view.once(stall)
    if not clock.over() or not view.once(standstill).has("data"):
        return None
    for one in sockets(view):
        if one.state != "SYN-SENT" or knocks_here(view, one) or not _is_of_a_rank(view, one.pid):
            continue
        given_up = [seconds for seconds in _attempts(view, one).values() if seconds >= KERNEL_S]
        if len(given_up) >= ATTEMPTS:
            return _unanswered_verdict(view, one, view.now - clock.since)
    return None


def _is_of_a_rank(view: View, pid: int) -> bool:
    """Whether a rank connects: libraries of collectives ask the same address for ever. Another program may go on without."""
    return any(process.pid == pid for process in view.once(ranks).values())


def _attempts(view: View, one: SocketSample) -> dict[str, float]:
    """Seconds for which each earlier attempt of this process at the same address was seen, by its own end."""
    times: dict[str, list[float]] = {}
    for sample, table in readings(view.samples, "sockets"):
        for each in table:
            if (each.pid, each.peer, each.state) == (one.pid, one.peer, "SYN-SENT") and sample.t >= view.once(stall).since:
                times.setdefault(each.local, []).append(sample.t)
    return {local: found[-1] - found[0] for local, found in times.items() if local != one.local}


def _unanswered_verdict(view: View, one: SocketSample, seconds: float) -> Diagnosis:
    process = next((each for each in view.once(everyone).values() if each.pid == one.pid), None)
    text = f"its attempts to reach {one.peer} have no answer for {format_duration(seconds)}, and the kernel gave up {ATTEMPTS} of them"
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
