"""What the log of a server that was up already says of its start: the lines that mark phases, and the last of all."""

from __future__ import annotations

import re
from typing import NamedTuple

from runbook.hosts.base import CallTimeout, Mark, RemoteError
from runbook.model.profile import Profile
from runbook.steps.base import Launched, StepContext

TAIL_BYTES = 32 * 1024
MOST_LINES = 150
LONGEST_LINE = 2000
SEARCHED_BYTES = 64 * 2**20
"""Marks of a start are looked for in the last so many bytes before the tail: more would take longer than the look itself."""
SEARCH_S = 15.0


class Past(NamedTuple):
    """Lines, and the place in the log from which everything is new. Its old lines are no progress of this wait."""

    lines: tuple[str, ...]
    inode: int
    offset: int


def read_past(ctx: StepContext, launched: Launched) -> Past | None:
    """Two or three round trips; None when the log cannot be read at all: then the samples say why."""
    path = launched.state.log
    if not path:
        return None
    try:
        tail = ctx.host.read(path, -TAIL_BYTES, TAIL_BYTES)
    except (CallTimeout, RemoteError):
        return None
    begin = max(0, tail.size - len(tail.data))
    whole = tail.data.rfind(b"\n") + 1
    lines = re.split(rb"[\r\n]+", tail.data[:whole])[1 if begin else 0 :]
    last = tuple(line.decode("utf-8", "backslashreplace")[:LONGEST_LINE] for line in lines if line)
    return Past((*_marks(ctx, launched, tail.inode, begin), *last[-MOST_LINES:]), tail.inode, begin + whole)


def _marks(ctx: StepContext, launched: Launched, inode: int, end: int) -> tuple[str, ...]:
    """The marking lines before the tail; none when they cannot be had in time, which only costs the phase's name."""
    pattern = mark_pattern(launched.profile)
    if not pattern or not end:
        return ()
    begin = Mark(inode, max(0, end - SEARCHED_BYTES))
    try:
        found = ctx.host.scan(launched.state.log, pattern, begin=begin, end=Mark(inode, end), most=MOST_LINES, timeout_s=SEARCH_S)
    except (CallTimeout, RemoteError):
        return ()
    return tuple(match.line for match in found.matches)


def mark_pattern(profile: Profile) -> str:
    """What marks a phase or readiness in this profile's logs; empty when nothing does."""
    parts = [profile.ready, *(text for phase in profile.phases for text in (phase.mark, phase.begin, phase.end))]
    return "|".join(f"(?:{re.sub(r'[(][?]P<[^>]*>', '(?:', part)})" for part in parts if part)
