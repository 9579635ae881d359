"""crashed/rank_died: a rank or worker that ended while the server's main process lives on, and which of several was the first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from runbook.diagnose.actors import actors
from runbook.diagnose.causes import Cause, causes
from runbook.diagnose.child_deaths import COMM, zombies
from runbook.diagnose.execution import APART_S, execution
from runbook.diagnose.family import everyone, rank_mains, ranks
from runbook.diagnose.motion import Key, rows
from runbook.diagnose.phases import rank_number
from runbook.diagnose.stall import stall
from runbook.diagnose.view import View
from runbook.model.sample import ProcessSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence

DIED_S = 1.5
"""A rank that is dead for so long is not replaced any more; its log's last lines had time to come. Less than the 2 s between two looks, or
the second of them may be too early by a few milliseconds."""


class Lost(NamedTuple):
    """A rank or worker that is dead: its newest living row, seconds since it was first seen so, its exit code (None: it is gone)."""

    process: ProcessSample
    seconds: float
    code: int | None

    @property
    def how(self) -> str:
        """How it ended, for people."""
        if self.code is None:
            return "is gone"
        return f"was ended by signal {-self.code}" if self.code < 0 else f"ended with code {self.code}"


def rank_died(view: View) -> Diagnosis | None:
    """crashed/rank_died: when a rank or worker that was seen alive is dead or gone at two looks ≥ 1.5 s apart while the main process lives
    on, and no other took its place; one that ended with code 0, or of which only that is known, when the rest has stood still for 10 s,
    or at once where the engine never starts another. Of several that were first missed in the same look the one is named that the log
    names, else the parent of the others, else nobody.

    its live twins: a rank that is replaced by a new process, ranks that end after their work, a helper that ended.
    """
    if view.last is None or view.main is None or view.main.state in "ZX":
        return None
    lost = [one for one in _lost_ranks(view) if one.seconds >= DIED_S]
    if not all(one.code for one in lost) and view.profile.processes.replaced is not False and not _rest_stands(view):
        lost = [one for one in lost if one.code]
    return _died(view, _first(view, lost)) if lost else None


def _lost_ranks(view: View) -> list[Lost]:
    """Ranks and workers that were seen alive, and are dead now."""
    looks = [(sample.t, rows(sample)) for sample in view.samples if isinstance(sample.processes, Seen)]
    pattern = re.compile(view.profile.processes.workers) if view.profile.processes.workers else None
    living = view.once(ranks)
    alive: dict[Key, tuple[ProcessSample, int | None]] = {}
    died: dict[Key, float] = {}
    for t, table in looks:
        mains = {(one.pid, one.start): rank for rank, one in rank_mains(tuple(table.values())).items()}
        for key, process in table.items():
            if process.state not in "ZX" and (key in mains or (pattern and pattern.search(process.title))):
                alive[key] = (process, mains.get(key))
        for key in alive:
            if key not in table or table[key].state in "ZX":
                died.setdefault(key, t)
            else:
                died.pop(key, None)
    found = [
        Lost(alive[key][0], looks[-1][0] - t, _code(view, key))
        for key, t in died.items()
        if (alive[key][1] not in living if alive[key][1] is not None else not _has_a_heir(alive[key][0], t, looks))
    ]
    return found + [Lost(one, seconds, one.exit_code) for one, seconds in _unseen_ranks(view) if (one.pid, one.start) not in died]


def _code(view: View, key: Key) -> int | None:
    zombie = view.once(everyone).get(key)
    return zombie.exit_code if zombie is not None else None


def _has_a_heir(process: ProcessSample, died: float, looks: Sequence[tuple[float, Mapping[Key, ProcessSample]]]) -> bool:
    """Whether a process of the same title has begun since then, and lives."""
    before = {key for t, table in looks if t < died for key in table}
    return any(one.title == process.title and one.state not in "ZX" for key, one in looks[-1][1].items() if key not in before)


def _unseen_ranks(view: View) -> Iterator[tuple[ProcessSample, float]]:
    """Dead ones that nobody saw alive: a zombie has lost its title and bears only the first 15 letters of it, as its living peers do."""
    living = view.once(ranks)
    missing = set(range(view.question.ranks or max(living, default=-1) + 2)) - set(living)
    for process, seconds in zombies(view):
        if any(process.title == peer.title[:COMM] for peer in living.values() if process.ppid == peer.ppid):
            number = min(missing) if len(missing) == 1 else None
            yield msgspec.structs.replace(process, rank=number), seconds


def _rest_stands(view: View) -> bool:
    runs = [run for run in view.once(execution).runs if run.seconds >= APART_S]
    return bool(runs) and not view.once(actors) and view.once(stall).wall_s >= APART_S


def _first(view: View, lost: list[Lost]) -> list[Lost]:
    """Those of which one was the first: an engine ends the others at once, and so does the kernel with a dead parent's children."""
    longest = max(one.seconds for one in lost)
    found = [one for one in lost if one.seconds == longest]
    cause = causes([timed.line for timed in view.lines], view.rules).first
    said = [_named(one.process, cause) for one in found] if cause is not None else [0]
    if max(said) > 0:
        found = [one for one, words in zip(found, said, strict=True) if words == max(said)]
    pids = {one.process.pid for one in found}
    return [one for one in found if one.process.ppid not in pids] or found


def _named(process: ProcessSample, cause: Cause) -> int:
    """How well a line of the log speaks of it: how many words of its title are in it; more than by any word when its rank said the line."""
    words = {word for word in re.findall(r"[a-z]{4,}", process.title.lower()) if word in cause.line.lower()}
    says_it = process.rank is not None and process.rank == rank_number(cause.rank)
    return len(words) + says_it * len(process.title)


def _died(view: View, first: list[Lost]) -> Diagnosis:
    one = first[0] if len(first) == 1 else None
    code, ago = first[0].code, f"{format_duration(first[0].seconds)} ago"
    who = [f"pid {lost.process.pid} `{lost.process.title.strip()[:80]}`" for lost in first]
    if one is not None:
        what = f"{'a worker' if one.process.rank is None else f'rank {one.process.rank}'}, {who[0]}, {one.how} {ago}"
    else:
        what = f"{len(first)} workers, {', '.join(who)}, ended {ago}, and which of them was the first was not seen"
    host = view.last.host if view.last else ""
    return Diagnosis(
        verdict="crashed",
        kind="rank_died",
        confidence="proven" if code else "strong",
        rule="rank_died",
        reason=f"{what}; the main process lives on",
        phase=view.course.current,
        quiet_s=view.quiet_s,
        culprit=Culprit(host=host, pid=one.process.pid, rank=one.process.rank, title=one.process.title, note=one.how) if one else None,
        evidence=tuple(
            Evidence(
                signal="rank_dead",
                value=lost.code if lost.code is not None else "gone",
                window_s=round(lost.seconds, 3),
                points_to="crashed",
            )
            for lost in first
        ),
        blind=view.blind(),
        next=("read the last lines of that rank's log", "see whether the kernel ended it: `dmesg -T | grep -i 'killed process'`"),
    )
