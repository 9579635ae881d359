"""Reading a journal that may be newer than this version, torn, or from another machine: what can be read, and what is missing.

What is missing becomes a finding at the end, so that each renderer tells it without knowing about files. Not for going on with a run:
`resume` and `cancel` read strictly, with `journal.load_events`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from runbook.engine.journal import EVENTS, JournalError
from runbook.model.event import FORMAT, AnyEvent, EvidenceSaved, Found, RunStarted
from runbook.model.verdict import Finding

_decode = msgspec.json.Decoder(AnyEvent).decode
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(AnyEvent))
_NOT_AN_EVENT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MOST_NAMED = 5
LONGEST_GLANCE = 256 * 1024


class _Tag(msgspec.Struct):
    event: str


_tag = msgspec.json.Decoder(_Tag).decode


def read_recording(source: bytes) -> list[AnyEvent]:
    """The events that can be read, then a finding for each kind of what could not. Raises JournalError when no line is an event."""
    lines = source.split(b"\n")
    events: list[AnyEvent] = []
    newer: dict[str, list[int]] = {}
    unreadable: list[int] = []
    torn = 0
    for number, line in enumerate(lines, 1):
        try:
            events.append(_decode(line))
        except _NOT_AN_EVENT:
            kind = _kind(line)
            if number == len(lines):
                torn = len(line)  # an empty one is the end of a whole last line
            elif kind is None or kind in _KNOWN:
                unreadable.append(number)
            else:
                newer.setdefault(kind, []).append(number)
    if not events:
        raise JournalError("no line of it is an event of a run: name the events.jsonl of a run")
    return [*events, *_notes(events, newer, unreadable, torn)]


def load_recording(folder: Path, file: str = EVENTS) -> list[AnyEvent]:
    """The events of a run's folder, and a finding for evidence that is not there. Raises JournalError when it cannot be read."""
    try:
        events = read_recording((folder / file).read_bytes())
    except OSError as problem:
        raise JournalError(f"cannot read {folder / file}: {problem.strerror}") from problem
    gone = [event.file for event in events if isinstance(event, EvidenceSaved) and evidence_path(folder, event.file) is None]
    if gone:
        text = f"{_count(gone, 'evidence file')} of the run not found beside this journal: {_some(gone)}"
        events.append(_note(events, "evidence_missing", text))
    return events


def glance(folder: Path, file: str = EVENTS) -> list[AnyEvent]:
    """The header and the end of a journal: enough for a list of runs, however long they were. Raises JournalError."""
    try:
        with (folder / file).open("rb") as source:
            first = source.readline(LONGEST_GLANCE)
            source.seek(max(source.tell(), source.seek(0, 2) - LONGEST_GLANCE))
            last = source.read(LONGEST_GLANCE)
    except OSError as problem:
        raise JournalError(f"cannot read {folder / file}: {problem.strerror}") from problem
    events = []
    for line in [first, *last.split(b"\n")]:
        try:
            events.append(_decode(line))
        except _NOT_AN_EVENT:
            continue  # cut by where the end begins, torn, or of a newer version: `show` says which
    if not events:
        raise JournalError("no line of it is an event of a run")
    return events


def evidence_path(folder: Path, name: str) -> Path | None:
    """An evidence file inside the run's folder, or None: not there, or (in a journal that somebody made up) somewhere else."""
    root = (folder / "evidence").resolve()
    try:
        path = (folder / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return None


def _kind(line: bytes) -> str | None:
    """The tag of a line that is not an event of ours, when it has one."""
    try:
        return _tag(line).event
    except _NOT_AN_EVENT:
        return None


def _notes(events: list[AnyEvent], newer: dict[str, list[int]], unreadable: list[int], torn: int) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    header = next((event for event in events if isinstance(event, RunStarted)), None)
    if header is None:
        found.append(_note(events, "no_header", "the journal has no header: run, playbook and variables are not known"))
    elif header.format > FORMAT:
        found.append(_note(events, "newer_format", f"the journal has format {header.format}, and this version knows {FORMAT}"))
    for kind, numbers in newer.items():
        name = re.sub(r"\W", "_", kind)[:40]
        text = f"left out {_count(numbers, 'event')} of the kind `{name}`, which this version does not know: line {_some(numbers)}"
        found.append(_note(events, "newer_events", text))
    if unreadable:
        found.append(
            _note(
                events,
                "unreadable_events",
                f"left out {_count(unreadable, 'line')} of the journal that cannot be read: line {_some(unreadable)}",
            )
        )
    if torn:
        found.append(_note(events, "torn_journal", f"the last line of the journal is torn: {torn} bytes of a write that never finished"))
    return found


def _note(events: list[AnyEvent], code: str, text: str) -> Found:
    return Found(finding=Finding(code=code, text=text), t=max(event.t for event in events))


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _some(items: Sequence[object]) -> str:
    more = f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return ", ".join(map(str, items[:MOST_NAMED])) + more
