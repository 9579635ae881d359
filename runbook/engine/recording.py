"""Reading a journal that may be newer than this version, torn, or from another machine: what can be read, and what is missing.

What is missing becomes a finding at the end, so that each renderer tells it without knowing about files. Not for going on with a run:
`resume` and `cancel` read strictly, with `journal.load_events`.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from runbook.engine.journal import EVENTS, JournalError, decode_event
from runbook.model.event import FORMAT, AnyEvent, EvidenceSaved, Found, RunStarted
from runbook.model.verdict import Finding

_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(AnyEvent))
_NOT_AN_EVENT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MOST_NAMED = 5
LONGEST_GLANCE = 256 * 1024


class _Tag(msgspec.Struct):
    event: str


_tag = msgspec.json.Decoder(_Tag).decode


class Recording:
    """The events of a journal as they are read, one line in memory at a time, then a finding for each kind of what could not be read.

    `folder` is where evidence files are looked for; None: they are not. Iterating raises JournalError when no line is an event.
    """

    def __init__(self, lines: Iterable[bytes], folder: Path | None = None) -> None:
        self._lines, self._folder = lines, folder
        self.notes: list[Found] = []
        """What is missing; known once all was read."""

    def __iter__(self) -> Iterator[AnyEvent]:
        missing = _Missing()
        for number, line in enumerate(self._lines, 1):
            try:
                event = decode_event(line)
            except _NOT_AN_EVENT:
                missing.line(number, line)
                continue
            missing.event(event, self._folder)
            yield event
        self.notes = missing.notes()
        yield from self.notes


def read_recording(source: bytes) -> list[AnyEvent]:
    """The events that can be read, then the findings. Raises JournalError when no line is an event."""
    return list(Recording(io.BytesIO(source)))


def load_recording(folder: Path, file: str = EVENTS) -> list[AnyEvent]:
    """The events of a run's folder, and a finding for evidence that is not there. Raises JournalError when it cannot be read."""
    with open_recording(folder, file) as recording:
        return list(recording)


@contextlib.contextmanager
def open_recording(folder: Path, file: str = EVENTS) -> Iterator[Recording]:
    """The same as a stream, for journals larger than memory. Raises JournalError when it cannot be opened or read."""
    try:
        with (folder / file).open("rb") as source:
            yield Recording(source, folder)
    except OSError as problem:
        raise JournalError(f"cannot read {folder / file}: {problem.strerror}") from problem


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
            events.append(decode_event(line))
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


class _Missing:
    """What a reader of a journal has to be told, gathered line by line."""

    def __init__(self) -> None:
        self._header: RunStarted | None = None
        self._last_t: float | None = None
        self._newer: dict[str, list[int]] = {}
        self._unreadable: list[int] = []
        self._torn = 0
        self._gone: list[str] = []

    def event(self, event: AnyEvent, folder: Path | None) -> None:
        """One that could be read."""
        self._last_t = max(event.t, self._last_t or event.t)
        if isinstance(event, RunStarted):
            self._header = self._header or event
        elif isinstance(event, EvidenceSaved) and folder is not None and evidence_path(folder, event.file) is None:
            self._gone.append(event.file)

    def line(self, number: int, line: bytes) -> None:
        """One that could not. Without its end it is the last one, torn by a write that never finished."""
        if not line.endswith(b"\n"):
            self._torn = len(line)
            return
        kind = _kind(line)
        if kind is None or kind in _KNOWN:
            self._unreadable.append(number)
        else:
            self._newer.setdefault(kind, []).append(number)

    def notes(self) -> list[Found]:
        """The findings. Raises JournalError when there was no event."""
        if self._last_t is None:
            raise JournalError("no line of it is an event of a run: name the events.jsonl of a run")
        return [Found(finding=Finding(code=code, text=text), t=self._last_t) for code, text in self._told()]

    def _told(self) -> Iterator[tuple[str, str]]:
        if self._header is None:
            yield "no_header", "the journal has no header: run, playbook and variables are not known"
        elif self._header.format > FORMAT:
            yield "newer_format", f"the journal has format {self._header.format}, and this version knows {FORMAT}"
        for kind, numbers in self._newer.items():
            name = re.sub(r"\W", "_", kind)[:40]
            yield (
                "newer_events",
                f"left out {_count(numbers, 'event')} of the kind `{name}`, which this version does not know: line {_some(numbers)}",
            )
        if self._unreadable:
            lines = f"{_count(self._unreadable, 'line')} of the journal that cannot be read: line {_some(self._unreadable)}"
            yield "unreadable_events", f"left out {lines}"
        if self._torn:
            yield "torn_journal", f"the last line of the journal is torn: {self._torn} bytes of a write that never finished"
        if self._gone:
            count = _count(self._gone, "evidence file")
            yield "evidence_missing", f"{count} of the run not found beside this journal: {_some(self._gone)}"


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _some(items: Sequence[object]) -> str:
    more = f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return ", ".join(map(str, items[:MOST_NAMED])) + more
