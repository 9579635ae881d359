"""hung/stale_lock: a lock file whose maker is gone, polled for ever."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from runbook.diagnose.actors import DEEP, polls_a_lock_file
from runbook.diagnose.child_progress import is_compiler
from runbook.diagnose.execution import APART_S, WORKS, Run, execution
from runbook.diagnose.family import accused, everyone, name
from runbook.diagnose.places import NOWHERE, places
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, verdict
from runbook.diagnose.view import View
from runbook.model.sample import LockSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis

SLACK_S = 1.0
KEPT_OPEN = re.compile(r"\(\S*(?:torch/utils/file_baton|filelock/\S+)\.py|\(file_baton\.py")
"""Waits for a lock whose holder keeps the file open: torch's FileBaton, filelock's SoftFileLock. Most other makers close it at once."""


def stale_lock(view: View) -> Diagnosis | None:
    """hung/stale_lock: when two looks at its stack find a process in a wait for a lock file, the only such file is older than every process
    of the tree, it is on a file system that no other host or container uses, its maker is gone (nobody has it open, which makers of torch's
    and filelock's kind have as long as they live; or the pid that stands in it is no process's), no compiler runs, and at two looks ≥ 10 s
    apart all that the server does is to wake and look.

    its live twins: an idle or polling server beside old lock files, which lie about in any cache; a lock whose maker compiles; one that its
    maker has closed and will remove; a lock of the kernel whose holder works.
    """
    clock = view.once(stall)
    if clock.wall_s < APART_S or not at_rest(view):
        return None
    waiting = [run for run in view.once(accused) or _main(view) if run.seconds >= APART_S]
    if not waiting or not all(_polls(view, run) for run in waiting):
        return None
    if any(is_compiler(process.title) and process.state not in "ZX" for process in view.once(everyone).values()):
        return None
    tied = next((run for run in waiting if _at_lock(view, run)), None)
    lock = next(iter(_orphans(view, tied)), None) if tied is not None else None
    return _verdict(view, lock, tied) if lock is not None and tied is not None else None


def _main(view: View) -> tuple[Run, ...]:
    main = view.main
    found = view.once(execution).of((main.pid, main.start)) if main is not None else None
    return (found,) if found is not None else ()


def _polls(view: View, run: Run) -> bool:
    return _at_lock(view, run) or (run.demand < WORKS and not run.frozen)


def _at_lock(view: View, run: Run) -> bool:
    """Whether its stack ties it to a lock file. Old ones lie about: nothing else does."""
    return polls_a_lock_file(run, view.once(places).get(run.key, NOWHERE))


def old_lock_files(view: View) -> list[LockSample]:
    """Lock files without an owner that were there before every process of the tree, at two looks."""
    oldest = max((process.age_s or 0.0 for process in view.once(everyone).values()), default=0.0)
    looks = [(sample.t, sample.locks.value) for sample in view.samples if isinstance(sample.locks, Seen)]
    looks = [look for look in looks if look[0] >= view.once(stall).since - SLACK_S]
    if len(looks) < 2 or oldest == 0.0:
        return []
    first = {lock.path for lock in looks[0][1] if lock.kind == "file"}
    known = {lock.path for _, locks in looks for lock in locks if lock.holder is None and lock.holder_known}
    return [
        lock
        for lock in looks[-1][1]
        if lock.kind == "file"
        and lock.path in first
        and lock.holder is None
        and lock.path in known
        and lock.age_s is not None
        and lock.age_s > oldest + (view.now - looks[-1][0]) + SLACK_S
    ]


def _orphans(view: View, tied: Run) -> list[LockSample]:
    """Of those the kind for which it waits, whose makers are gone: torch's builder has one of its own."""
    frames = view.once(places).get(tied.key, NOWHERE).frames[:DEEP]
    baton, kept = any("file_baton" in frame for frame in frames), any(KEPT_OPEN.search(frame) for frame in frames)
    mine = [lock for lock in old_lock_files(view) if (PurePosixPath(lock.path).name == "lock") is baton]
    return [lock for lock in mine if lock.elsewhere is False and (lock.maker_gone or (kept and lock.maker is None))]


def _verdict(view: View, lock: LockSample, run: Run) -> Diagnosis:
    age = format_duration(lock.age_s or 0.0)
    maker = f"its maker, pid {lock.maker}, is gone" if lock.maker_gone else "nobody has it open"
    text = f"the lock file {lock.path} is {age} old, older than every process here, and {maker}"
    return verdict(
        view,
        "stale_lock",
        "stale_lock",
        f"{name(view, run.process)} waits for a lock file that nobody will remove",
        accuse=run.process,
        note=f"waits for {lock.path}",
        proofs=(Proof("coordination", "lock_file", lock.path, text, run.seconds),),
        next_looks=(f"remove it once you are sure that no other host uses that folder: `rm {lock.path}`",),
    )
