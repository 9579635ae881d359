"""Do threads wait for each other's locks, and nobody else is left who could free them? From outside a lock is a futex like any wait.

A main thread that joins a sleeping thread, waits for an event, a signal or another process's semaphore stands in a futex as well, and
comes back; so do two threads at two locks whose holder is a third that sleeps. So a circle needs a knot, or the order of the locks as it
was read: each of its threads waits for a lock that the next one holds, by the source of their lines, or as the C library's mutex says.
Every other thread that could free one, also one that it was handed to, has to be in an endless wait too, or in a loop which by its
source only computes, sleeps and logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runbook.diagnose.actors import tree
from runbook.diagnose.calls import ENDING, Tid, at_calls, waits_here, waits_of, woken_by_signals
from runbook.diagnose.enders import may_be_ended
from runbook.diagnose.family import HELPERS, accused
from runbook.diagnose.knots import knot
from runbook.diagnose.loops import closed, standing
from runbook.diagnose.motion import rows
from runbook.diagnose.places import wchan_kind
from runbook.diagnose.view import View
from runbook.model.sample import ThreadSample

STOPPING = ENDING | {3, 15}
"""With QUIT and TERM: a thread that waits to be told to stop frees locks only at the end."""


def tied(view: View) -> bool:
    """Whether every main thread that matters can never go on, and nobody is left who may do something for them."""
    runs = view.once(accused)
    bound = view.once(knot)
    if not runs or any((run.process.pid, run.process.pid) not in bound for run in runs):
        return False
    return not may_be_ended(view, [run.process.pid for run in runs]) and nobody_left(view)


def nobody_left(view: View) -> bool:
    """Whether no thread of the tree can ever go on: any other could send a signal to the rest."""
    return all((pid, thread.tid) in view.once(knot) for pid, thread in _threads(view))


def circle(view: View) -> bool:
    """Whether threads wait for each other's locks, which only their own process can free, and nobody frees those that matter."""
    locked = view.once(locked_out)
    pids = {pid for pid, _ in locked} | {run.process.pid for run in view.once(accused)}
    return bool(locked) and nobody_acts(view, pids, locked) and not may_be_ended(view, pids)


def nobody_acts(view: View, pids: Iterable[int], but: frozenset[Tid] = frozenset()) -> bool:
    """Whether no thread of these processes will ever do anything for the others: each waits without a limit for one of its own
    process, or only goes round, and no signal is handled."""
    held, bound = view.once(at_calls), view.once(knot) | view.once(closed) | but
    chosen = set(pids)
    if chosen & woken_by_signals(view, STOPPING) or any(waits_of(view, pid) is None for pid in chosen):
        return False
    for pid, thread in _threads(view):
        tid = (pid, thread.tid)
        if pid in chosen and not waits_here(held.get(tid)) and tid not in bound:
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


def locked_out(view: View) -> frozenset[Tid]:
    """Threads whose lock is held by a thread in a circle, or in one themselves."""
    after = {**_by_source(view), **_by_mutex(view)}
    return frozenset(tid for tid in after if _goes_round(tid, after))


def _goes_round(tid: Tid, after: Mapping[Tid, Tid]) -> bool:
    passed: set[Tid] = set()
    while tid in after and tid not in passed:
        passed.add(tid)
        tid = after[tid]
    return tid in passed


def _by_source(view: View) -> dict[Tid, Tid]:
    """Threads at a lock of C which one other thread holds that stands as well, each with it."""
    channels = {(pid, thread.tid): thread.wchan for pid, thread in _threads(view)}
    calls, stacks = view.once(at_calls), view.once(standing)
    at = {tid: stack for tid, stack in stacks.items() if waits_here(calls.get(tid)) and wchan_kind(channels.get(tid, "")) == "lock"}
    found = {}
    for tid, stack in at.items():
        holders = [other for other, one in at.items() if other[0] == tid[0] and stack.wants and stack.wants in one.holds]
        if len(holders) == 1:
            found[tid] = holders[0]
    return found


def _by_mutex(view: View) -> dict[Tid, Tid]:
    """Threads at a mutex of the C library, each with the thread that holds it and stands as well."""
    calls = view.once(at_calls)
    named = {tid: (tid[0], call.owner) for tid, call in calls.items() if call.owner is not None and waits_here(call)}
    return {tid: owner for tid, owner in named.items() if owner in calls}
