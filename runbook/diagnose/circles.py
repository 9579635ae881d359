"""Do threads wait for each other's locks, and nobody else is left who could free them? From outside a lock is a futex like any wait.

A main thread that joins a sleeping thread, waits for an event, a signal or another process's semaphore stands in a futex as well, and
comes back. So a circle needs a knot, or two threads at plain locks of different places and addresses, by their stacks and their system
calls, and every other thread of their process in such a wait too, or beating like a metrics thread. A thread in a long sleep, a receive,
a poll, a pipe or a child's wait may be the one that frees them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from runbook.diagnose.actors import tree
from runbook.diagnose.calls import ENDING, Tid, at_calls, woken_by_signals
from runbook.diagnose.family import HELPERS, accused
from runbook.diagnose.knots import knot
from runbook.diagnose.motion import rows
from runbook.diagnose.places import frame_kind, normalised, wchan_kind
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import Seen, ThreadSample

BEATS = 5
"""Looks at which a thread had run since the one before: it wakes all the time, so what it wakes for has never freed anybody."""
BEAT_S = 30.0
STOPPING = ENDING | {3, 15}
"""With QUIT and TERM: a thread that waits to be told to stop frees locks only at the end."""


def tied(view: View) -> bool:
    """Whether every main thread that matters can never go on, and nobody is left who does more than beat."""
    runs = view.once(accused)
    bound = view.once(knot)
    if not runs or any((run.process.pid, run.process.pid) not in bound for run in runs):
        return False
    return all((pid, thread.tid) in bound or _beats(view, pid, thread.tid) for pid, thread in _threads(view))


def circle(view: View) -> bool:
    """Whether threads wait for each other's locks, which only their own process can free."""
    locked, held = view.once(_at_locks), view.once(at_calls)
    if len(set(locked.values())) < 2 or len({held[tid].at for tid in locked}) < 2:
        return False
    owners = {pid for pid, _ in locked}
    awake = woken_by_signals(view, STOPPING)
    if owners & awake:
        return False  # a handler of theirs may free a lock
    for pid, thread in _threads(view):
        call = held.get((pid, thread.tid))
        still = call is not None and call.private and not call.timed and pid not in awake
        if pid in owners and (pid, thread.tid) not in locked and not still and not _beats(view, pid, thread.tid):
            return False
    return True


def _threads(view: View) -> Iterator[tuple[int, ThreadSample]]:
    """Every thread of the tree as it was last read, but those of helpers that only wait for tasks."""
    for process in tree(view):
        if process.state in "ZX" or HELPERS.search(process.title):
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
    held = view.once(at_calls)
    found = {}
    for key, frames in looks.items():
        same = len(frames) >= 2 and normalised(frames[-1]) == normalised(frames[-2])
        plain = wchan_kind(channels.get(key, "")) == "lock" and frame_kind(frames[-1]) in ("", "waits")
        if same and plain and key in held and held[key].private and not held[key].timed:
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
