"""hung/rank_missing, hung/rank_desync: what the ranks of one server say together.

Order of blame: a dead or missing rank, then one outside the collective, then one at another operation or number, then nobody. Where it
is even, or where several differ, nobody is named: a wrong name costs more than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from runbook.diagnose.actors import pipes, sockets
from runbook.diagnose.calls import Tid, at_calls, waits_here, woken_by_signals
from runbook.diagnose.child_deaths import says_it_waits
from runbook.diagnose.execution import APART_S, Run, execution
from runbook.diagnose.family import accused, ancestors, everyone, is_helper, name, ranks, ranks_elsewhere
from runbook.diagnose.knots import knot
from runbook.diagnose.loops import closed
from runbook.diagnose.motion import readings
from runbook.diagnose.places import NOWHERE, Place, normalised, places, python_threads
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import Proof, at_rest, proven, standstill, verdict
from runbook.diagnose.turning import standing
from runbook.diagnose.view import View
from runbook.diagnose.wait_lexicon import BLOCKED
from runbook.model.sample import ProcessSample, Seen
from runbook.model.verdict import Culprit, Diagnosis
from runbook.model.waits import CollectiveSample

MISSING_S = 12.0
OPERATION = re.compile(r"^(all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|barrier|gather|scatter|reduce|recv|send)\w* \(")
INSIDE = re.compile(r"\(\S*(?:torch/distributed/|deep_ep/)")


SUPERVISORS = re.compile(
    r"\(\S*(?:torch/distributed/(?:elastic|launcher|run|launch)|torch/multiprocessing/spawn|multiprocessing/(?:process|popen_\w+))\S*\.py"
)
"""Code that only waits for the end of processes."""
MESSAGES = re.compile(r"\bwait \(\S*multiprocessing/connection\.py")
"""Code that waits for the ends or the messages of several processes."""


class Groups(NamedTuple):
    """Ranks by where they stand: label -> ranks. `odd` is the one to blame, None when nobody can be named; `source`: stacks or counters."""

    by: Mapping[str, tuple[int, ...]]
    odd: int | None
    source: str

    @property
    def differ(self) -> bool:
        """Whether they stand at different places."""
        return len(self.by) > 1

    def text(self) -> str:
        """For people: "ranks 0, 1, 3 in all_reduce; rank 2 in broadcast"."""
        return "; ".join(
            f"rank{'s' if len(members) > 1 else ''} {', '.join(map(str, members))} {label}"
            for label, members in sorted(self.by.items(), key=lambda item: (-len(item[1]), item[1]))
        )


def rank_missing(view: View) -> Diagnosis | None:
    """hung/rank_missing: when fewer ranks are there than there should be, none was started for 12 s, the others only wait, and so does who
    starts them, for their ends, in a standstill or by what the log says.

    its live twins: ranks that are still being started or import their libraries, a rank that is slow and there, a launcher that polls for
    what the last rank needs.
    """
    wanted, here = view.question.ranks, view.once(ranks)
    clock = view.once(stall)
    if not wanted or not here or len(here) >= wanted or clock.wall_s < MISSING_S or not at_rest(view):
        return None
    runs = [run for process in here.values() if (run := view.once(execution).of((process.pid, process.start))) is not None]
    if len(runs) < len(here) or any(run.seconds < APART_S for run in runs) or _unnamed(view, here):
        return None
    if not _starter_waits(view):
        return None
    absent = sorted(set(range(max(wanted, max(here) + 1))) - set(here))
    seconds = min(run.seconds for run in runs)
    text = f"{len(here)} of {wanted} ranks are there, and none of them works; missing: {', '.join(map(str, absent))}"
    culprit = Culprit(host=view.last.host if view.last else "", rank=absent[0], note="never came") if len(absent) == 1 else None
    found = verdict(
        view,
        "rank_missing",
        "rank_missing",
        "the ranks wait for one that is not there" if len(absent) == 1 else "the ranks wait for others that are not there",
        accuse=None,
        proofs=(Proof("coordination", "ranks", len(here), text, seconds),),
        next_looks=("read the log of the missing rank's start", "limits of the user: threads, memory, shared memory, `ulimit -a`"),
    )
    return msgspec.structs.replace(found, culprit=culprit)


def _starter_waits(view: View) -> bool:
    if not _starters_alone(view):
        return False
    if looked_after_only(view) or says_it_waits(view, view.once(stall).since):
        return True
    table, here = view.once(places), {process.pid for process in view.once(ranks).values()}
    others = [run for run in view.once(execution).runs if run.process.pid not in here and run.process.rank is None]
    return all(run.frozen and table.get(run.key, NOWHERE).kind in BLOCKED for run in others)


def _starters_alone(view: View) -> bool:
    """Whether no thread of Python beside the main one of a process that is no rank may start another: none is there, or can never go on."""
    here = {process.pid for process in view.once(ranks).values()}
    calls, stuck = view.once(at_calls), view.once(knot) | view.once(closed)
    for run in view.once(execution).runs:
        pid, alone = run.process.pid, len(run.process.threads) == 1
        if pid in here or run.process.rank is not None or alone or is_helper(run, view.once(places).get(run.key, NOWHERE)):
            continue
        known = python_threads(view, pid)
        for tid in known - {pid}:
            call = calls.get((pid, tid))
            if (pid, tid) not in stuck and not waits_here(call):
                return False
        if not known:
            return False
    return True


def _unnamed(view: View, here: Mapping[int, ProcessSample]) -> bool:
    """Whether a process without a rank runs that could become one: titles are set after the imports."""
    mains = {(one.pid, one.start) for one in here.values()}
    main = view.main
    for run in view.once(execution).runs:
        supervisor = main is not None and run.process.pid == main.pid
        if run.key not in mains and not supervisor and run.process.rank is None and not run.frozen:
            return True
    return False


def rank_desync(view: View) -> Diagnosis | None:
    """hung/rank_desync: when the ranks stand in different operations, or one of them outside where it can never go on, at two looks, none
    of them executes anything, and a counter that should move stands: sequence numbers at once, a bar, steps or tokens when the stall
    budget is spent.

    its live twins: a rank that computes, reads, sleeps or waits for a request while the others wait for it; ranks whose numbers rise from
    look to look; ranks of a group of which another is not seen here.
    """
    if not at_rest(view) or view.once(stall).wall_s < APART_S or view.once(ranks_elsewhere):
        return None
    stood = counter_groups(view)
    if stood is not None and stood.differ and _all_stand(view) and outsiders_stand(view):
        return _desync(view, stood, "their sequence numbers stand", "strong")
    groups = view.once(stack_groups)
    counter = standing(view) or ("their sequence numbers stand" if stood is not None else "")
    confidence = proven(view) if groups is not None and groups.differ and counter and outsiders_stand(view) else None
    if groups is None or confidence is None or not view.once(standstill).has("execution"):
        return None
    return _desync(view, groups, counter, confidence)


def _desync(view: View, groups: Groups, counter: str, confidence: str) -> Diagnosis:
    process = view.once(ranks).get(groups.odd) if groups.odd is not None else None
    whose = f"; {name(view, process)} is the odd one out" if process is not None else "; which side is at fault cannot be told"
    text = f"{groups.text()}, the same at two looks{whose}"
    return verdict(
        view,
        "rank_desync",
        "rank_desync",
        f"the ranks wait for each other at different places, and {counter}",
        accuse=process,
        note="stands elsewhere than its peers",
        proofs=(Proof("coordination", "rank_groups", {label: list(members) for label, members in groups.by.items()}, text, APART_S),),
        confidence=confidence,
        next_looks=("read the odd rank's stack from the outside in: where does it leave the others' path?",),
    )


def stack_groups(view: View) -> Groups | None:
    """Groups by main stacks that were the same at two looks, on every rank; None when a rank's was not taken twice."""
    here, table = view.once(ranks), view.once(places)
    labels: dict[int, str] = {}
    for rank, process in here.items():
        place = table.get((process.pid, process.start), NOWHERE)
        if place.source == "wchan" or not place.same or not place.frames:
            return None
        labels[rank] = _label(place)
    return _grouped(labels, "stacks") if len(labels) >= 2 else None


def _label(place: Place) -> str:
    frames = normalised(place.frames)
    for frame in frames:
        if INSIDE.search(frame) or OPERATION.search(frame):
            found = next((match for one in frames if (match := OPERATION.search(one))), None)
            return f"in {found[1]}" if found else "in a collective"
    return f"outside, in {frames[0]}"


def counter_groups(view: View) -> Groups | None:
    """Groups by operation and sequence number, where no number moved between two looks; None when one did or nothing was asked twice."""
    looks: dict[tuple[float, int], dict[tuple[str, int], CollectiveSample]] = {}
    since = view.once(stall).since
    for sample, found in readings(view.samples, "collectives"):
        if sample.t >= since:
            for one in found:
                looks.setdefault((sample.t, one.look), {})[one.group, one.rank] = one
    if len(looks) < 2:
        return None
    before, after = (looks[when] for when in sorted(looks)[-2:])
    labels: dict[int, str] = {}
    lowest = min((one.sequence for one in after.values() if one.sequence is not None), default=None)
    if lowest is None:
        return None
    for key, one in after.items():
        if key not in before or before[key].sequence != one.sequence or one.sequence is None:
            return None
        labels[one.rank] = f"at {one.operation or 'number'} {one.sequence}"
    return _grouped(labels, "counters") if len(labels) >= 2 else None


def _grouped(labels: Mapping[int, str], source: str) -> Groups:
    by: dict[str, tuple[int, ...]] = {}
    for rank in sorted(labels):
        by[labels[rank]] = (*by.get(labels[rank], ()), rank)
    return Groups(by, _odd(by, source), source)


def _odd(by: Mapping[str, tuple[int, ...]], source: str) -> int | None:
    """A single rank outside of what all others are in; else a single one that differs from at least two who agree."""
    total = sum(len(members) for members in by.values())
    outside = [rank for label, members in by.items() if label.startswith("outside") for rank in members]
    if len(by) < 2 or total < 3:
        return outside[0] if source == "stacks" and len(outside) == 1 and total == 2 and len(by) == 2 else None
    if len(outside) == 1:
        return outside[0]
    if outside:
        return None
    largest = max(len(members) for members in by.values())
    alone = [members[0] for members in by.values() if len(members) == 1]
    return alone[0] if len(alone) == 1 and largest == total - 1 else None


def outsiders_stand(view: View) -> bool:
    """Whether no rank outside the collective can come to it any more.

    By its stack and its system call each waits without a limit of time for its own process, in which no other thread runs Python, and all
    others wait so themselves or are the collectives' library's own, which only carry what the processes of the tree send.
    """
    table, calls, awake, carrying = view.once(places), view.once(at_calls), woken_by_signals(view), carriers(view)
    numbered = [*view.once(ranks).values()]
    for process in numbered or [run.process for run in view.once(accused)]:  # a number that was set after a fork is not seen
        key = (process.pid, process.start)
        place = table.get(key, NOWHERE)
        if place.kind == "collective":
            continue
        call = calls.get((process.pid, process.pid))
        threads = python_threads(view, process.pid) - {process.pid}
        if not waits_here(call) or threads or process.pid in awake or not place.blocked:
            return False
        others = {(process.pid, one.tid) for one in process.threads if one.tid != process.pid} - carrying
        if not all(waits_here(calls.get(tid)) for tid in others):
            return False
    return True


def carriers(view: View) -> frozenset[Tid]:
    """Threads that only carry what processes of the tree send, also when they wake now and then to look."""
    ours = {process.pid for process in view.once(everyone).values()}
    looks = [waits for sample, waits in readings(view.samples, "calls") if sample.t >= view.once(stall).since]
    named = [(one.pid, call) for waits in looks for one in waits for call in one.threads if call.carries]
    return frozenset((pid, call.tid) for pid, call in named if {*call.peers} <= ours)


def looked_after_only(view: View) -> bool:
    """Whether every process that is no rank, nor below one, only looks after the ranks: then none of them brings what they wait for.

    A front that waits for requests may be a member of their group, or start the rank that is not there.
    """
    table, here = view.once(places), {process.pid for process in view.once(ranks).values()}
    for run in view.once(execution).runs:
        place = table.get(run.key, NOWHERE)
        family = {run.process.pid, *(one.pid for one in ancestors(view, run.process))}
        if family & here or is_helper(run, place) or place.kind == "child":
            continue
        if not any(SUPERVISORS.search(frame) for frame in place.frames) and not _hears_only_children(view, run, place):
            return False
    return True


def _hears_only_children(view: View, run: Run, place: Place) -> bool:
    """Whether it waits for its children's messages, and nobody outside of the tree could send it one."""
    if not any(MESSAGES.search(frame) for frame in place.frames) or any(one.pid == run.process.pid for one in sockets(view)):
        return False
    process = view.once(everyone).get(run.key)
    ours = {one.pid for one in view.once(everyone).values()}
    if process is None or not isinstance(process.pipes, Seen):
        return False
    return all(one.peers_known and set(one.peers) <= ours for one in pipes(process) if one.end == "read")


def _all_stand(view: View) -> bool:
    """Every rank's main thread executed nothing between two looks, and none of them in a sleep."""
    runs: list[Run] = []
    for process in view.once(ranks).values():
        run = view.once(execution).of((process.pid, process.start))
        if run is None or not run.frozen or run.seconds < APART_S:
            return False
        runs.append(run)
    return len(runs) >= 2
