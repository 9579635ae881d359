"""hung/stale_lock: a lock file whose maker is gone, polled for ever."""

from __future__ import annotations

from pathlib import PurePosixPath

from runbook.diagnose.actors import actors
from runbook.diagnose.child_progress import is_compiler
from runbook.diagnose.execution import APART_S, WORKS, Run, execution
from runbook.diagnose.family import accused, everyone, name
from runbook.diagnose.places import NOWHERE, places
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, excused, standstill, verdict
from runbook.diagnose.view import View
from runbook.model.sample import LockSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis

SLACK_S = 1.0


def stale_lock(view: View) -> Diagnosis | None:
    """hung/stale_lock: when a lock file is older than every process of the tree, nobody has it open, no compiler runs, and at two looks
    ≥ 10 s apart all that the server does is to wake and look; at once where the stack or the file's name tells such a lock, else after
    the stall budget.

    its live twins: a lock file whose maker compiles, a flock whose holder works, a file that a lock library leaves behind by design.
    """
    clock = view.once(stall)
    if clock.wall_s < APART_S or view.once(actors) or excused(view):
        return None
    waiting = [run for run in view.once(accused) or _main(view) if run.seconds >= APART_S]
    if not waiting or not all(_polls(view, run) for run in waiting):
        return None
    if any(is_compiler(process.title) and process.state not in "ZX" for process in view.once(everyone).values()):
        return None
    for lock in _orphans(view):
        sure = any(_at_lock(view, run) for run in waiting) or PurePosixPath(lock.path).name == "lock"
        if sure or (clock.over() and view.once(standstill).has("data")):
            return _verdict(view, lock, waiting[0], sure)
    return None


def _main(view: View) -> tuple[Run, ...]:
    main = view.main
    found = view.once(execution).of((main.pid, main.start)) if main is not None else None
    return (found,) if found is not None else ()


def _polls(view: View, run: Run) -> bool:
    return run.demand < WORKS and (not run.frozen or _at_lock(view, run))


def _at_lock(view: View, run: Run) -> bool:
    place = view.once(places).get(run.key, NOWHERE)
    return place.same and place.source != "wchan" and place.kind in ("lock", "waits")


def _orphans(view: View) -> list[LockSample]:
    """Lock files without an owner that were there before every process of the tree, at two looks."""
    oldest = max((process.age_s or 0.0 for process in view.once(everyone).values()), default=0.0)
    looks = [(sample.t, sample.locks.value) for sample in view.samples if isinstance(sample.locks, Seen)]
    looks = [look for look in looks if look[0] >= view.once(stall).since - SLACK_S]
    if len(looks) < 2 or oldest == 0.0:
        return []
    first = {lock.path for lock in looks[0][1] if lock.kind == "file"}
    return [
        lock
        for lock in looks[-1][1]
        if lock.kind == "file"
        and lock.path in first
        and lock.holder is None
        and lock.holder_known
        and lock.age_s is not None
        and lock.age_s > oldest + (view.now - looks[-1][0]) + SLACK_S
    ]


def _verdict(view: View, lock: LockSample, run: Run, sure: bool) -> Diagnosis:
    age = format_duration(lock.age_s or 0.0)
    text = f"the lock file {lock.path} is {age} old, older than every process here, and nobody has it open"
    return verdict(
        view,
        "stale_lock",
        "stale_lock",
        f"{name(view, run.process)} waits for a lock file that nobody will remove",
        accuse=run.process,
        note=f"waits for {lock.path}",
        proofs=(Proof("coordination", "lock_file", lock.path, text, run.seconds),),
        confidence="strong" if sure else "likely",
        next_looks=(f"remove it once you are sure that no other host uses that folder: `rm {lock.path}`",),
    )
