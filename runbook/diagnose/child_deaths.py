"""hung/child_dead: somebody waits for a child that is dead."""

from __future__ import annotations

import re

from runbook.diagnose.actors import unseen
from runbook.diagnose.circles import nobody_acts, nobody_left
from runbook.diagnose.enders import may_be_ended
from runbook.diagnose.execution import APART_S, WORKS, Run, execution
from runbook.diagnose.family import HELPERS, everyone, is_topmost, name
from runbook.diagnose.knots import knot
from runbook.diagnose.loops import CLOSED, loop_of
from runbook.diagnose.motion import rows
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, standstill, verdict
from runbook.diagnose.view import View
from runbook.diagnose.wait_lexicon import ACTS_AGAIN
from runbook.model.sample import ProcessSample
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis

COMM = 15
"""Letters of a process's name that the kernel keeps: all that a zombie has."""
SAYS_IT_WAITS = re.compile(r"\bwait(?:ing|s|ed)?\b|\bnot (?:yet )?(?:ready|up|available)\b", re.IGNORECASE)
FOR_WORK = re.compile(
    r"\b(?:jobs?|tasks?|requests?|work|messages?|input|events?|clients?|connections?|commands?|batch(?:es)?|next)\b", re.IGNORECASE
)
"""What an idle worker waits for."""
QUIET_S = 12.0
"""Without any progress for so long after a child's death, its parent does not go on without it."""


def child_dead(view: View) -> Diagnosis | None:
    """hung/child_dead: when a worker that failed has been a zombie at two looks ≥ 10 s apart, its parent can never go on, as one that reads
    what only the dead wrote; or it stands, or by its source goes round for ever and only logs, no thread of it may do more, and the child
    was a worker or the log says that it waits; it neither says that it will try again nor has started another child since, and nobody else
    does anything; another program that failed, or one that ended with code 0, only after the stall budget.

    its live twins: a helper that ended and was never collected while its parent works on, a parent with other children that work, a
    worker that polls for its next job beside the zombie of a tool that it once called, a parent that polls for a file which another may
    write as well, a supervisor that counts down to a restart, or waits for its worker with a limit of time.
    """
    clock = view.once(stall)
    if clock.wall_s < QUIET_S or not at_rest(view):
        return None
    if any(one.kind == "stranger" for one in view.once(unseen)):
        return None
    for process, seconds in zombies(view):
        parent = next((run for run in view.once(execution).runs if run.process.pid == process.ppid), None)
        if seconds < APART_S or parent is None or HELPERS.search(process.title) or not _waits(view, process, parent, seconds):
            continue
        if not _is_worker(view, process, parent) and not clock.over():
            continue
        if process.exit_code == 0 and not (clock.over_frozen() and parent.frozen and view.once(standstill).has("data")):
            continue
        return _verdict(view, process, parent, seconds)
    return None


def _is_worker(view: View, process: ProcessSample, parent: Run) -> bool:
    """Whether it was one of the server's own processes, not a tool that it called: forked ones keep the name, workers have a title."""
    same = process.title.strip("[]")[:COMM] == parent.process.title[:COMM]
    return same or _has_a_place(view, process)


def _has_a_place(view: View, process: ProcessSample) -> bool:
    """Whether its title alone says that the server cannot go on without it."""
    pattern = view.profile.processes.workers
    ranked = process.rank is not None and is_topmost(process, {one.pid: one for one in view.once(everyone).values()})
    return ranked or bool(pattern and re.search(pattern, process.title))


def zombies(view: View) -> list[tuple[ProcessSample, float]]:
    """Dead children that nobody collected: newest row, seconds since they were first seen so."""
    if view.last is None:
        return []
    found = []
    tables = [(sample.t, rows(sample)) for sample in view.samples if rows(sample)]
    for key, process in tables[-1][1].items() if tables else ():
        if process.state != "Z":
            continue
        began = tables[-1][0]
        for t, table in reversed(tables):
            if key not in table or table[key].state != "Z":
                break
            began = t
        found.append((process, tables[-1][0] - began))
    return found


def _waits(view: View, process: ProcessSample, parent: Run, seconds: float) -> bool:
    """It can never go on; or it only goes round, and something ties that to the dead child.

    One that waits or polls for its next job looks the same, beside the zombie of a tool that it called long ago.
    """
    knotted = parent.frozen and (parent.process.pid, parent.process.pid) in view.once(knot) and nobody_left(view)
    if knotted or _acts_again(view, process, seconds):
        return knotted
    pid = parent.process.pid
    if may_be_ended(view, {pid}):
        return False
    waits = _has_a_place(view, process) or says_it_waits(view, view.now - seconds)
    if parent.frozen:
        return (waits or _is_worker(view, process, parent)) and nobody_acts(view, {pid})
    goes_round = parent.demand < WORKS and loop_of(view, pid, pid) == CLOSED
    return waits and goes_round and nobody_acts(view, {pid}, frozenset({(pid, pid)}))


def _acts_again(view: View, dead: ProcessSample, seconds: float) -> bool:
    """Whether since the death its parent spoke of another start or attempt, or has started another child."""
    looks = [(sample.t, rows(sample)) for sample in view.samples if rows(sample)]
    began = looks[-1][0] - seconds
    if any(timed.t >= began and ACTS_AGAIN.search(timed.line.text) for timed in view.lines):
        return True
    before = next((table for t, table in reversed(looks) if t < began), looks[0][1])
    later = [one for t, table in looks if t >= began for key, one in table.items() if key not in before]
    return any(one.ppid == dead.ppid and one.pid != dead.pid for one in later)


def says_it_waits(view: View, since: float) -> bool:
    """Whether all that the log has told since then, more than once, is that it waits, and not for its next piece of work."""
    told = [timed.line.text for timed in view.lines if timed.t > since and timed.line.text.strip()]
    return len(told) > 1 and all(SAYS_IT_WAITS.search(text) and not FOR_WORK.search(text) for text in told)


def _verdict(view: View, process: ProcessSample, parent: Run, seconds: float) -> Diagnosis:
    code = process.exit_code
    how = "" if code is None else f", ended by signal {-code}" if code < 0 else f", ended with code {code}"
    text = f"its child, pid {process.pid} `{process.title.strip()[:60]}`, is dead{how} and not collected for {format_duration(seconds)}"
    doing = "stands still" if parent.frozen else "only wakes to look"
    return verdict(
        view,
        "child_dead",
        "child_dead",
        f"{name(view, parent.process)} {doing}, waiting for a child that is dead",
        accuse=process,
        note="dead, and its parent still waits for it",
        proofs=(Proof("coordination", "zombie", process.pid, text, seconds),),
        confidence="strong" if code else "likely",
        next_looks=(
            "read the log of that child: its own last lines say why it died",
            f"who waits: `py-spy dump --nonblocking --pid {parent.process.pid}`",
        ),
    )
