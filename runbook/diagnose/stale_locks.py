"""hung/stale_lock: a lock file whose maker is gone, polled for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from runbook.diagnose.actors import DEEP, polls_a_lock_file
from runbook.diagnose.child_progress import is_compiler
from runbook.diagnose.enders import starters
from runbook.diagnose.execution import APART_S, WORKS, Run, execution
from runbook.diagnose.family import accused, everyone, name
from runbook.diagnose.motion import readings
from runbook.diagnose.places import NOWHERE, main_stacks, places
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, verdict
from runbook.diagnose.view import View
from runbook.model.sample import LockSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis

SLACK_S = 1.0
BATON = re.compile(r"\((?:\S*torch/utils/)?file_baton\.py")
ENDLESS = "FileBaton"
"""Torch's class waits without a limit, and its maker keeps the file open. Those of filelock and home-made ones may give up, or break the
lock of a dead maker; one of the kernel is never stale."""


class Awaited(NamedTuple):
    """The lock file that a process waits for, and the class of lock that it is, as far as that is known."""

    path: str
    kind: str


def stale_lock(view: View) -> Diagnosis | None:
    """hung/stale_lock: when two looks at its stack find a process in torch's wait for a lock file, and by the objects of its frames, else
    by the last line of its log, for this very one: it is older than every process of the tree, it is on a file system that no other host or
    container uses, its maker is gone, since that keeps it open and nobody has, no compiler runs, who started it waits without a limit, and
    at two looks ≥ 10 s apart all that the server does is to wake and look.

    its live twins: an idle or polling server beside old lock files, which lie about in any cache; a wait for another lock than the old one;
    a lock whose maker compiles; one that its maker has closed and will remove; a lock of the kernel, whose file is never stale; one of
    filelock, which may have a limit of time.
    """
    clock = view.once(stall)
    if clock.wall_s < APART_S or not at_rest(view):
        return None
    waiting = [run for run in waiting_ones(view) if run.seconds >= APART_S]
    if not waiting or not all(_polls(view, run) for run in waiting):
        return None
    if any(is_compiler(process.title) and process.state not in "ZX" for process in view.once(everyone).values()):
        return None
    tied = next((run for run in waiting if _at_lock(view, run)), None)
    lock = _orphan(view, tied) if tied is not None else None
    return _verdict(view, lock, tied) if lock is not None and tied is not None else None


def waiting_ones(view: View) -> tuple[Run, ...]:
    """Whose wait would be the server's: a main process that only wakes and looks is not accused by itself."""
    main = view.main
    found = view.once(execution).of((main.pid, main.start)) if main is not None else None
    return view.once(accused) or ((found,) if found is not None else ())


def _polls(view: View, run: Run) -> bool:
    return _at_lock(view, run) or (run.demand < WORKS and not run.frozen)


def _at_lock(view: View, run: Run) -> bool:
    """Whether its stack ties it to a lock file. Old ones lie about: nothing else does."""
    return polls_a_lock_file(run, view.once(places).get(run.key, NOWHERE))


def lock_files(view: View) -> list[LockSample]:
    """Lock files that were there before every process of the tree, at two looks, and that nobody is seen to hold."""
    oldest = max((process.age_s or 0.0 for process in view.once(everyone).values()), default=0.0)
    looks = [(sample.t, value) for sample, value in readings(view.samples, "locks") if sample.t >= view.once(stall).since - SLACK_S]
    if len(looks) < 2 or oldest == 0.0:
        return []
    before = {lock.path for _, locks in looks[:-1] for lock in locks if lock.kind == "file"}
    least_s = oldest + (view.now - looks[-1][0]) + SLACK_S
    files = [lock for lock in looks[-1][1] if lock.kind == "file" and lock.path in before and lock.holder is None]
    return [lock for lock in files if lock.age_s is not None and lock.age_s > least_s]


def old_lock_files(view: View) -> list[LockSample]:
    """Those of them that at some look nobody had open, of all processes: who made one and keeps it open has had it since."""
    known = {lock.path for _, value in readings(view.samples, "locks") for lock in value if lock.holder is None and lock.holder_known}
    return [lock for lock in lock_files(view) if lock.path in known]


def _orphan(view: View, tied: Run) -> LockSample | None:
    """The one for which it waits, when its maker is gone."""
    wanted = awaited_file(view, tied)
    lock = next((lock for lock in old_lock_files(view) if wanted is not None and lock.path == wanted.path), None)
    if lock is None or wanted is None or lock.elsewhere is not False:
        return None
    if wanted.kind != ENDLESS or any(starters(view, [tied.process.pid])):
        return None
    return lock if lock.maker_gone or lock.maker is None else None


def awaited_file(view: View, run: Run) -> Awaited | None:
    """What two looks at its stack agree on; where they could not tell, the one known lock file that its log's last line names."""
    stacks = view.once(main_stacks).get(run.process.pid, [])[-2:]
    found = {Awaited(stack.lock_file, stack.lock_class) for stack in stacks}
    if len(stacks) == 2 and len(found) == 1 and stacks[0].lock_file:
        return found.pop()
    if any(stack.lock_file for stack in stacks) or not view.lines:
        return None
    last = view.lines[-1].line.text
    locks = view.newest("locks")
    named = {lock.path for lock in (locks.value if isinstance(locks, Seen) else ()) if lock.kind == "file" and _names(last, lock.path)}
    baton = any(BATON.search(frame) for frame in _frames(view, run))
    return Awaited(named.pop(), ENDLESS if baton else "") if len(named) == 1 else None


def which_lock(view: View) -> Iterator[str]:
    """What is open about processes in a wait for a lock file."""
    for run in waiting_ones(view):
        if not _at_lock(view, run):
            continue
        wanted, old = awaited_file(view, run), lock_files(view)
        if wanted is not None:
            yield f"pid {run.process.pid} waits for the lock file {wanted.path}, and that its holder is gone is not proven"
        elif old:
            listed = ", ".join(lock.path for lock in old[:4]) + (", …" if len(old) > 4 else "")
            yield f"for which lock file pid {run.process.pid} waits is not known; old ones that nobody is seen to hold: {listed}"


def _names(line: str, path: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-]|\.\w)", line) is not None


def _frames(view: View, run: Run) -> tuple[str, ...]:
    return view.once(places).get(run.key, NOWHERE).frames[:DEEP]


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
