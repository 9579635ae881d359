"""A journal that is still being written, event by event."""

from __future__ import annotations

from pathlib import Path

import msgspec

from runbook.engine.journal import EVENTS, JournalError, decode_event
from runbook.model.event import AnyEvent


class Tail:
    """Reads what was added since. Only whole lines count, so a torn one that is cut off later was never seen."""

    def __init__(self, folder: Path, file: str = EVENTS) -> None:
        self.path = folder / file
        self._at = 0
        self.unreadable = 0
        """Lines left out: of a newer version, or damaged. `show` without following says which."""

    def more(self) -> list[AnyEvent]:
        """The events that are new. Raises JournalError when the file cannot be read any more."""
        try:
            with self.path.open("rb") as source:
                source.seek(self._at)
                data = source.read()
        except OSError as problem:
            raise JournalError(f"cannot read {self.path}: {problem.strerror}") from problem
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        events: list[AnyEvent] = []
        for line in whole.split(b"\n")[:-1]:
            try:
                events.append(decode_event(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.unreadable += 1
        return events
