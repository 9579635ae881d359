"""What earlier runs measured, from a small file in each run's folder. It is made from the journal when the run ends.

A journal may have hundreds of megabytes; nobody reads one for a number that is shown beside another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import msgspec

from runbook.diagnose.baseline import related
from runbook.model.event import AnyEvent, StartMeasured
from runbook.model.usual import Kin, MeasuredStart

FILE = "starts.json"
FORMAT = 1
MOST_FOLDERS = 300
MOST_STARTS = 10
MOST_BYTES = 256 * 1024


class _Starts(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    starts: tuple[MeasuredStart, ...]


_decode = msgspec.json.Decoder(_Starts).decode


def keep(folder: Path, events: Iterable[AnyEvent]) -> None:
    """Write what a run measured beside its journal; nothing when it measured nothing."""
    starts = tuple(event.start for event in events if isinstance(event, StartMeasured))
    if starts:
        (folder / FILE).write_bytes(msgspec.json.encode(_Starts(format=FORMAT, starts=starts)))


def earlier(folders: Iterable[Path], kin: Kin) -> list[MeasuredStart]:
    """The newest starts of the same kind. `folders`: those of runs, newest first; a file that cannot be read is left out."""
    found: list[MeasuredStart] = []
    for folder in itertools.islice(folders, MOST_FOLDERS):
        found += [start for start in reversed(_read(folder / FILE)) if related(start.kin, kin)]
        if len(found) >= MOST_STARTS:
            break
    return found[:MOST_STARTS]


def _read(path: Path) -> tuple[MeasuredStart, ...]:
    try:
        with path.open("rb") as source:
            index = _decode(source.read(MOST_BYTES))
    except (OSError, msgspec.DecodeError):  # none was made, or by another version
        return ()
    return index.starts if index.format == FORMAT else ()
