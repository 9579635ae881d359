"""Do threads wait for each other's locks, and nobody else is left who could free them? From outside a lock is a futex like any wait.

A main thread that joins a sleeping thread, waits for an event, a signal or another process's semaphore stands in a futex as well, and
comes back. So a circle needs two threads at plain locks of different places, by their stacks, and every other thread at a futex too,
or beating like a metrics thread. A thread in a long sleep, a receive, a poll, a pipe or a child's wait may be the one that frees them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from runbook.diagnose.actors import tree
from runbook.diagnose.motion import rows
from runbook.diagnose.places import frame_kind, normalised, wchan_kind
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import Seen, ThreadSample

BEATS = 5
"""Looks at which a thread had run since the one before: it wakes all the time, so what it wakes for has never freed anybody."""
BEAT_S = 30.0

Tid = tuple[int, int]


def circle(view: View) -> bool:
    """Whether the tree's threads wait for each other's locks."""
    locked = view.once(_at_locks)
    if len(locked) < 2 or (len(set(locked.values())) < 2 and not _all_but_mains(view, locked)):
        return False
    waited_for = {process.ppid for process in tree(view) if any(pid == process.pid for pid, _ in locked)}
    for pid, thread in _threads(view):
        kind = wchan_kind(thread.wchan)
        held = (pid, thread.tid) in locked or kind == "lock" or (kind == "child" and pid in waited_for)
        if not held and not _beats(view, pid, thread.tid):
            return False
    return True


def _all_but_mains(view: View, locked: dict[Tid, tuple[str, ...]]) -> bool:
    """At one place of the source nobody may be left who could hold the lock: no thread but main ones is anywhere else."""
    return all((pid, thread.tid) in locked or pid == thread.tid for pid, thread in _threads(view))


def _threads(view: View) -> Iterator[tuple[int, ThreadSample]]:
    """Every thread of the tree as it was last read."""
    for process in tree(view):
        if process.state in "ZX":
            continue
        for sample in reversed(view.samples):
            row = rows(sample).get((process.pid, process.start))
            if row is not None and row.threads:
                yield from ((process.pid, thread) for thread in row.threads)
                break


def _at_locks(view: View) -> dict[Tid, tuple[str, ...]]:
    """Threads that stood at the same plain lock at both looks: a futex below code that is no wait for an event, each with its frames."""
    since = view.once(stall).since
    looks: dict[Tid, list[tuple[str, ...]]] = {}
    for sample in view.samples:
        if sample.t >= since and isinstance(sample.stacks, Seen):
            for stack in sample.stacks.value:
                if stack.source != "wchan":
                    looks.setdefault((stack.pid, stack.tid), []).append(stack.frames)
    channels = {(pid, thread.tid): thread.wchan for pid, thread in _threads(view)}
    found = {}
    for key, frames in looks.items():
        same = len(frames) >= 2 and normalised(frames[-1]) == normalised(frames[-2])
        if same and wchan_kind(channels.get(key, "")) == "lock" and frame_kind(frames[-1]) in ("", "waits"):
            found[key] = frames[-1]
    return found


def _beats(view: View, pid: int, tid: int) -> bool:
    """Whether a thread woke at so many of the last looks."""
    turns = []
    for sample in view.samples:
        if sample.t < view.now - BEAT_S:
            continue
        for (one, _), process in rows(sample).items():
            turns += [thread.switches for thread in process.threads if one == pid and thread.tid == tid]
    return sum(later > earlier for earlier, later in itertools.pairwise(turns)) >= BEATS
