"""The first cause of a death in a log, told from its echoes.

One fault is reported many times: by the rank that had it, by its peers whose connection broke, by the parent that cleans up. The
first line that names a cause counts; lines that a profile calls effects or noise never do. An error that the server survived (it went on to
the next phase, or logged much more) is no cause of a later death.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runbook.diagnose.fatal import COMMON, EXCEPTION, TRACEBACK
from runbook.diagnose.lines import Line, Matcher

SURVIVED_LINES = 60
"""So many ordinary lines after an error mean that the server went on. An estimate: stack dumps at death are indented, so not counted."""


class Cause(NamedTuple):
    """A line that names a cause: crash kind, text, rank label, its place in the log that was read, and what recognised it."""

    kind: str
    line: str
    rank: str
    place: int
    source: str


class Causes(NamedTuple):
    """`first` is the cause; `echoes` later causes and effects; `survived` earlier errors that the server lived through."""

    first: Cause | None
    echoes: int
    survived: tuple[Cause, ...]


def causes(lines: Sequence[Line], rules: Matcher) -> Causes:
    """Find the first cause in a server's whole log."""
    found = list(_candidates(lines, rules))
    effects = sum(1 for line in lines if _is_effect(line, rules))
    survived: list[Cause] = []
    for position, cause in enumerate(found):
        following = found[position + 1].place if position + 1 < len(found) else len(lines)
        if not _went_on(cause, lines[cause.place + 1 : following]):
            return Causes(cause, len(found) - position - 1 + effects, tuple(survived))
        survived.append(cause)
    return Causes(None, effects, tuple(survived))


def _candidates(lines: Sequence[Line], rules: Matcher) -> Iterator[Cause]:
    header: Line | None = None
    for index, line in enumerate(lines):
        message = line.msg
        if TRACEBACK in line.text:
            header = line
            continue
        ended = header is not None and _ends_traceback(message)
        if header is not None and not ended and (not message.strip() or message[:1] in " \t|+^~" or _between_chained(message)):
            continue
        cause = _classify(line, index, rules, ended)
        if cause is not None and header is not None and ended:
            cause = cause._replace(rank=line.rank or header.rank)
        header = None if ended else header
        if cause is not None and not line.noise and not _is_effect(line, rules):
            yield cause


def _classify(line: Line, index: int, rules: Matcher, ends_traceback: bool) -> Cause | None:
    for kind, pattern in rules.cause.items():
        if pattern.search(line.text):
            return Cause(kind, line.text, line.rank, index, "profile")
    for kind, pattern in COMMON:
        if pattern.search(line.msg):
            return Cause(kind, line.text, line.rank, index, "common")
    return Cause("exception", line.text, line.rank, index, "traceback") if ends_traceback else None


def _ends_traceback(message: str) -> bool:
    return bool(EXCEPTION.match(message)) and not _between_chained(message)


def _between_chained(message: str) -> bool:
    return message.startswith(("During handling of the above exception", "The above exception was the direct cause"))


def _is_effect(line: Line, rules: Matcher) -> bool:
    return any(pattern.search(line.text) for pattern in rules.effect.values())


def _went_on(cause: Cause, lines: Sequence[Line]) -> bool:
    """Whether the process that reported the error came further: its peers may, before somebody stops them."""
    if any(line.ready or (line.begins and line.rank == cause.rank) for line in lines):
        return True
    ordinary = [line for line in lines if not line.noise and line.msg[:1].strip()]
    return len(ordinary) > SURVIVED_LINES
