"""What source says of stacks: what a thread's loop does, which locks it waits for and holds."""

from __future__ import annotations

from collections.abc import Mapping

from runbook.diagnose.calls import Tid, looks_of
from runbook.diagnose.places import normalised
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import Seen
from runbook.model.waits import StackSample

ROUNDS = 2
"""So often a loop must have slept, and whoever waits beside it not have moved, before it counts as one that wakes nobody."""
CLOSED, LOOKS, NATIVE = "closed", "looks", "none"


def stacks_of(view: View) -> Mapping[Tid, list[StackSample]]:
    """Stacks of each thread since the last strong progress, oldest first; wait channels are none."""
    since = view.once(stall).since
    found: dict[Tid, list[StackSample]] = {}
    for sample in view.samples:
        if sample.t >= since and isinstance(sample.stacks, Seen):
            for stack in sample.stacks.value:
                if stack.source != "wchan":
                    found.setdefault((stack.pid, stack.tid), []).append(stack)
    return found


def standing(view: View) -> Mapping[Tid, StackSample]:
    """Threads whose newest two stacks are at the same place, and wait for and hold the same locks."""
    found = {}
    for tid, looks in view.once(stacks_of).items():
        if len(looks) < 2:
            continue
        before, last = looks[-2:]
        same = (before.wants, before.holds) == (last.wants, last.holds) and normalised(before.frames) == normalised(last.frames)
        if same:
            found[tid] = last
    return found


def loop_of(view: View, pid: int, tid: int) -> str:
    """What its loop does, where all looks agree."""
    kinds = {stack.loop for stack in view.once(stacks_of).get((pid, tid), [])}
    return kinds.pop() if len(kinds) == 1 else ""


def closed(view: View) -> frozenset[Tid]:
    """Threads that by their source go round for ever, and only compute, sleep and log, and did so since the last progress: they free
    nobody. A first line of a log may still wake whoever writes it elsewhere."""
    return frozenset(tid for tid in view.once(stacks_of) if loop_of(view, *tid) == CLOSED and _went_round(view, tid))


def _went_round(view: View, tid: Tid) -> bool:
    looks = [look for (pid, _), each in view.once(looks_of).items() if pid == tid[0] for look in each]
    since = view.once(stall).since
    switches = [thread.switches for t, process in looks if t >= since for thread in process.threads if thread.tid == tid[1]]
    return bool(switches) and switches[0] - switches[-1] >= ROUNDS
