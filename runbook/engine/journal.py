"""`events.jsonl`: the only truth of a run. Masked, appended, synced, one event a line; a torn last line is tolerated.

Every event is written before `append` returns, so the death of this process loses nothing. What the death of the whole machine may
lose is what is not synced yet, and a sync costs milliseconds; so events that only tell what was seen ride on the sync of the next
event that something depends on: a step's start is on disk before the step acts, a debt before it exists, a verdict before it is told.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from runbook.engine.redact import Mask
from runbook.model.clock import Clock
from runbook.model.event import (
    ActionEnded,
    AnyEvent,
    Event,
    EvidenceSaved,
    Found,
    HostConnected,
    Moved,
    PhaseReached,
    SampleTaken,
    StepEnded,
    Suspected,
    WaitBegan,
    WaitEnded,
)
from runbook.model.verdict import Finding

EVENTS = "events.jsonl"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REMOVED = "{} was removed or moved while the run went on: its journal was written anew, what was saved there before is not in it"
RIDES_ON_THE_NEXT = (
    ActionEnded,
    EvidenceSaved,
    HostConnected,
    Moved,
    PhaseReached,
    SampleTaken,
    StepEnded,
    Suspected,
    WaitBegan,
    WaitEnded,
)

_encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AnyEvent).decode
"""One line of a journal. Raises msgspec.DecodeError. Made once: the union is large."""


class JournalError(Exception):
    """The journal cannot be written (a full disk) or read (not one of ours)."""


class Journal:
    """Appends events and hands each, as written, to its followers. Thread safe. Raises JournalError when it cannot be opened."""

    def __init__(self, folder: Path, clock: Clock, mask: Mask, *, first: int = 0) -> None:
        self.folder = folder
        self.mask = mask
        self._clock = clock
        self._next = first
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise JournalError(f"cannot write {folder / EVENTS}: {problem.strerror}") from problem
        self._size = os.fstat(self._file).st_size
        self._followers: list[Callable[[AnyEvent], None]] = []
        self._given_up = False

    def follow(self, follower: Callable[[AnyEvent], None]) -> None:
        """Call `follower` with each event after it is on disk."""
        self._followers.append(follower)

    def append(self, event: Event) -> AnyEvent:
        """Stamp, mask, write and sync one event; answers it as written."""
        with self._lock:
            try:
                if not self._given_up and self._is_gone():
                    self._put_back()
                    self._one(Found(finding=Finding(code="folder_removed", text=REMOVED.format(self.folder))))
                return self._one(event)
            except OSError as problem:
                raise JournalError(_unwritten(self.folder / EVENTS, problem)) from problem

    def _one(self, event: Event) -> AnyEvent:
        stamped = msgspec.structs.replace(event, t=event.t or self._clock.now(), n=self._next)
        plain = self.mask.value(msgspec.to_builtins(stamped))
        line = _encode(plain)
        if not self._given_up:
            self._write(line + b"\n", sync=not isinstance(event, RIDES_ON_THE_NEXT))
        self._next += not self._given_up
        written: AnyEvent = msgspec.convert(plain, AnyEvent)
        for follower in self._followers:
            follower(written)
        return written

    def _is_gone(self) -> bool:
        """Whether somebody removed or moved the file that is open here."""
        try:
            return not os.path.samestat(os.stat(self.folder / EVENTS), os.fstat(self._file))
        except FileNotFoundError:
            return True

    def _put_back(self) -> None:
        """Write the journal so far at its place again; the open file has it, also when it was removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / EVENTS
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with open(f"/proc/self/fd/{self._file}", "rb") as before:
                _write_all(descriptor, before.read(self._size))
            os.fdatasync(descriptor)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file = descriptor

    def _write(self, data: bytes, *, sync: bool) -> None:
        """All of it or nothing: what a full disk took of a line is cut off again."""
        try:
            _write_all(self._file, data)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def take_up(self) -> None:
        """Try to write again."""
        self._given_up = False

    def give_up(self) -> None:
        """Write nothing more: the disk is full, and cleanup must go on without a record."""
        self._given_up = True

    def save(self, name: str, data: bytes | Iterable[bytes]) -> str:
        """Write a masked file below evidence/, whole or piece by piece; answers its path relative to the run folder.

        Raises JournalError, and whatever the pieces raise: then no file stays.
        """
        target = self.folder / "evidence" / name
        try:
            if not self._given_up:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._fill(target, [self.mask.bytes(data)] if isinstance(data, bytes) else self.mask.pieces(data))
        except OSError as problem:
            raise JournalError(_unwritten(target, problem)) from problem
        return str(target.relative_to(self.folder))

    @staticmethod
    def _fill(target: Path, pieces: Iterable[bytes]) -> None:
        try:
            with target.open("wb") as out:
                for piece in pieces:
                    out.write(piece)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _unwritten(path: Path, problem: OSError) -> str:
    way = "; free some space and try again" if problem.errno in FULL else ""
    return f"cannot write {path}: {problem.strerror}{way}"


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def read_events(source: bytes) -> list[AnyEvent]:
    """Decode a journal. A last line without its end is a write that never finished and is left out.

    Raises JournalError, with the line number, for anything else that is not an event.
    """
    lines = source.split(b"\n")
    torn = lines.pop()
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(decode_event(line))
        except msgspec.DecodeError as problem:
            if number == len(lines) and not torn:
                break
            raise JournalError(f"line {number} of the journal is not an event: {problem}") from problem
    return events


def load_events(folder: Path) -> list[AnyEvent]:
    """The events of a run folder."""
    try:
        return read_events((folder / EVENTS).read_bytes())
    except OSError as problem:
        raise JournalError(f"cannot read {folder / EVENTS}: {problem.strerror}") from problem


def repair_torn_line(folder: Path) -> None:
    """Cut a torn last line off before more is appended."""
    path = folder / EVENTS
    data = path.read_bytes()
    keep = data.rfind(b"\n") + 1
    if keep != len(data):
        os.truncate(path, keep)
