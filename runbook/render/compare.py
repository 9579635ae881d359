"""What differs between a run and another, or the last good ones ("it worked yesterday"). Pure; `comparison.py` shows it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from runbook.model.event import AnyEvent
from runbook.model.units import format_duration
from runbook.render.facts import Facts, Table, facts

MOST_LINES = 20
SHARE = 0.25
LEAST_S = 0.5
"""A duration differs when it is a quarter and half a second away from all of the other side's: an estimate, runs on one machine vary so."""
NEAR = 0.05
"""Fractions (means, rates, latencies) that are within five percent are the same: an estimate."""
NOT_THERE = "–"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs; null: not there on that side."""

    what: str
    a: str | None
    b: str | None
    note: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of difference. `more` rows were left out."""

    name: str
    rows: tuple[Difference, ...]
    more: int = 0


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side: a run, or several good ones, of which `run` is the newest."""

    run: str
    name: str
    verdict: str
    kind: str
    reason: str
    started: float | None = None
    runs: int = 1


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides, what differs, and the sections in which nothing does. `notes`: what limits the comparison."""

    a: Side
    b: Side
    same_verdict: bool
    sections: tuple[Section, ...]
    equal: tuple[str, ...]
    notes: tuple[str, ...] = ()


def compare(a_events: Iterable[AnyEvent], b_events: Iterable[AnyEvent]) -> Comparison:
    """What B has that A has not, and the other way round."""
    return against([facts(a_events)], facts(b_events))


def against(good: Sequence[Facts], run: Facts) -> Comparison:
    """A run against one or more others, newest first. A value differs when none of them has it; all but lines are shown of the newest."""
    newest = good[0]
    made = [_verdict(newest, run)]
    made += [_table(name, [other.tables[name] for other in good], table) for name, table in run.tables.items()]
    made.append(_durations("durations", [other.seconds for other in good], run.seconds))
    made.append(_table("findings", [other.findings for other in good], run.findings))
    made.append(_lines(good, run))
    return Comparison(
        a=_side(newest, len(good)),
        b=_side(run, 1),
        same_verdict=newest.verdict == run.verdict,
        sections=tuple(section for section in made if section.rows),
        equal=tuple(section.name for section in made if not section.rows),
        notes=tuple(_notes(good, run)),
    )


def _side(one: Facts, runs: int) -> Side:
    return Side(run=one.run, name=one.name, verdict=one.verdict, kind=one.kind, reason=one.reason, started=one.started, runs=runs)


def _verdict(a: Facts, b: Facts) -> Section:
    rows = [
        Difference(what=what, a=x or None, b=y or None)
        for what, x, y in (("verdict", a.verdict, b.verdict), ("kind", a.kind, b.kind))
        if x != y
    ]
    if rows and _own(a, a.reason) != _own(b, b.reason):
        rows.append(Difference(what="reason", a=a.reason or None, b=b.reason or None))
    return Section(name="verdict", rows=tuple(rows))


def _own(run: Facts, text: str) -> str:
    """A text without the run's own id: it differs always, and says nothing."""
    return text.replace(run.run, "RUN") if len(run.run) > 3 else text


def _table(name: str, good: Sequence[Table], table: Table) -> Section:
    rows = []
    for what in dict.fromkeys([*(key for other in good for key in other), *table]):
        values = [other.get(what) for other in good]
        if not any(_same(table.get(what), value) for value in values):
            rows.append(Difference(what=what, a=values[0], b=table.get(what), note=_several(values)))
    return Section(name=name, rows=tuple(rows))


def _same(a: str | None, b: str | None) -> bool:
    """Equal, or fractions as near as two good runs are."""
    if a is None or b is None or a == b or "." not in a + b:
        return a == b
    try:
        return math.isclose(float(a), float(b), rel_tol=NEAR)
    except ValueError:
        return False


def _several(values: Sequence[str | None]) -> str:
    others = sorted({value if value is not None else NOT_THERE for value in values})
    return f"good runs had {', '.join(others)}" if len(others) > 1 else ""


def _durations(name: str, good: Sequence[dict[str, float]], run: dict[str, float]) -> Section:
    rows = []
    for what in dict.fromkeys([*(key for other in good for key in other), *run]):
        known = [other[what] for other in good if what in other]
        now = run.get(what)
        if (known and now is not None and not _far(now, known)) or max([*known, now or 0.0]) < LEAST_S:
            continue  # a step that one side never reached shows by its verdict; a phase of no length shows nothing
        usual = format_duration(median(known)) if known else None
        spread = f"{format_duration(min(known))} to {format_duration(max(known))} in {len(known)} runs" if len(known) > 1 else ""
        change = f"{now - median(known):+.1f} s" if known and now is not None else ""
        note = ", ".join(part for part in (change, spread) if part)
        rows.append(Difference(what=what, a=usual, b=None if now is None else format_duration(now), note=note))
    return Section(name=name, rows=tuple(rows))


def _far(now: float, known: Sequence[float]) -> bool:
    return all(abs(now - other) > max(LEAST_S, SHARE * max(now, other)) for other in known)


def _lines(good: Sequence[Facts], run: Facts) -> Section:
    """Log lines that no good run had, and those that all had and this one has not."""
    before = {_own(other, key) for other in good for key in other.lines}
    now = {_own(run, key) for key in run.lines}
    new = [line for key, line in run.lines.items() if _own(run, key) not in before]
    always = [key for key in good[0].lines if all(_own(good[0], key) in {_own(other, k) for k in other.lines} for other in good[1:])]
    gone = [good[0].lines[key] for key in always if _own(good[0], key) not in now]
    rows = [Difference(what="new", a=None, b=line) for line in new[:MOST_LINES]]
    rows += [Difference(what="gone", a=line, b=None) for line in gone[:MOST_LINES]]
    return Section(name="log lines", rows=tuple(rows), more=len(new) + len(gone) - len(rows))


def _notes(good: Sequence[Facts], run: Facts) -> Iterable[str]:
    if run.name != good[0].name:
        yield f"these are runs of different playbooks: `{good[0].name}` and `{run.name}`"
    for side, one in (("A", good[0]), ("B", run)):
        if one.skipped_lines:
            yield f"{one.skipped_lines} log lines of {side} are not in its samples: a line counted as new or gone may be among them"
        if not one.lines:
            yield f"no log line of {side} was seen"
        if one.verdict in ("running", "suspended"):
            yield f"{side} has not ended"
