"""Progress in bytes: read and written, offsets of open files, TCP, pages of mapped weights, memory, growing folders.

No one source sees every load: mapped files on a warm cache move no byte counter, `recv` does not count as read, `pread` leaves the
offset where it was. Each source is compared with its own reading before, however long ago that was.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from runbook.diagnose.motion import MEMORY_STEP, STRONG_BYTES_PER_S, WEAK_BYTES_PER_S, Key, Motion, by_rate, readings, rows, seen
from runbook.model.sample import IoSample, ProcessSample, Sample, Seen, SocketSample

FAULTS_PER_S = 200.0
"""Page faults of memory that is taken and given back: 0.8 MiB/s. An estimate; a spin makes none at all."""

ON_END = 3
"""A process that listens answers whoever asks now and then, we among them: SGLang 0.5 reads 140 KiB of its counters for that, and writes a
page of 48 KiB. Only bytes in so many intervals on end are its own work, or such that came from a disk."""


class _Reading(NamedTuple):
    t: float
    value: Any


def byte_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """All byte signals of a tree."""
    yield from _io_motions(samples)
    yield from _memory_motions(samples)
    yield from _offset_motions(samples)
    yield from _socket_motions(samples)
    yield from _folder_motions(samples)


def _io_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Bytes read, and bytes written apart from the log's own growth and from answers."""
    last: dict[Key, IoSample] = {}
    before: Sample | None = None
    answering: set[Key] = set()
    on_end: Counter[Key] = Counter()
    for sample in samples:
        answering |= {(one.pid, one.start) for one in seen(sample.listeners) or () if one.ours}
        if not isinstance(sample.processes, Seen):
            continue
        read = written = 0
        seconds = sample.t - before.t if before is not None else 0.0
        for key, process in rows(sample).items():
            io, old = seen(process.io), last.get(key)
            if io is None:
                continue
            last[key] = io
            if old is None:
                continue
            called, fetched, wrote = io.rchar - old.rchar, io.read_bytes - old.read_bytes, io.wchar - old.wchar
            on_end[key] = on_end[key] + 1 if max(called, wrote) >= WEAK_BYTES_PER_S * seconds else 0
            works = key not in answering or on_end[key] >= ON_END
            read += max(0, called if works else 0, fetched)
            written += max(0, wrote if works else 0)
        if before is not None:
            yield from by_rate(sample.t, seconds, "read", float(read), "bytes read")
            yield from by_rate(sample.t, seconds, "written", float(max(0, written - _log_growth(before, sample))), "bytes written")
        before = sample


def _log_growth(before: Sample, after: Sample) -> int:
    if not isinstance(after.log, Seen):
        return 0
    start = before.log.value.end if isinstance(before.log, Seen) else after.log.value.offset
    return max(0, after.log.value.size - start)


def _memory_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Pages of mapped weights that come or go; resident, locked and shared memory that grows; page faults, which are weak."""
    last: dict[tuple[Key, str], _Reading] = {}
    for sample in samples:
        changes = _changes(sample, last)
        for signal, text, total, seconds in changes:
            floor = max(MEMORY_STEP, 4 * STRONG_BYTES_PER_S * seconds) if signal in ("rss", "shared") else MEMORY_STEP
            if signal == "faults":
                if total >= FAULTS_PER_S * seconds > 0:
                    yield Motion(sample.t, seconds, signal, total, text, strong=False)
            elif total >= floor:
                yield Motion(sample.t, seconds, signal, total, text)


_MEMORY = (
    ("weights", "mapped weight pages", lambda process: seen(process.mapped_weights), True),
    ("rss", "resident memory grows", lambda process: process.rss, False),
    ("locked", "locked memory grows", lambda process: process.locked, False),
    ("shared", "shared memory grows", lambda process: process.shared, False),
    ("faults", "page faults", lambda process: process.faults, False),
)


def _changes(sample: Sample, last: dict[tuple[Key, str], _Reading]) -> list[tuple[str, str, float, float]]:
    """(signal, text, sum over the processes, seconds) since each one's reading before."""
    found = []
    processes: list[tuple[Key, ProcessSample]] = list(rows(sample).items())
    for signal, text, read, both_ways in _MEMORY:
        total = seconds = 0.0
        for key, process in processes:
            value = read(process)
            if value is None:
                continue
            old = last.get((key, signal))
            last[key, signal] = _Reading(sample.t, value)
            if old is not None:
                total += abs(value - old.value) if both_ways else max(0, value - old.value)
                seconds = max(seconds, sample.t - old.t)
        found.append((signal, text, total, seconds))
    return found


def _offset_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Offsets of open files that move on. The log's own offset is no progress."""
    last: dict[tuple[Key, str], _Reading] = {}
    for sample in samples:
        log = sample.log.value.path if isinstance(sample.log, Seen) else None
        total = seconds = 0.0
        for key, process in rows(sample).items():
            for file in seen(process.files) or ():
                old = last.get((key, file.path))
                last[key, file.path] = _Reading(sample.t, file.offset)
                if old is not None and file.path != log:
                    total += max(0, file.offset - old.value)
                    seconds = max(seconds, sample.t - old.t)
        yield from by_rate(sample.t, seconds, "offsets", total, "offsets of open files")


def _socket_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """TCP bytes. Under the floor they are weak: a wait for a missing rank polls its store for ever."""
    for (before, old), (after, new) in itertools.pairwise(readings(samples, "sockets")):
        known = {_ends(one): one for one in old}
        total = 0
        for one in new:
            earlier = known.get(_ends(one))
            for now, then in ((one.received, earlier and earlier.received), (one.sent, earlier and earlier.sent)):
                if now is not None and then is not None:
                    total += max(0, now - then)
        yield from by_rate(after.t, after.t - before.t, "network", float(total), "TCP bytes")


def _ends(one: SocketSample) -> tuple[int, str, str]:
    return (one.pid, one.local, one.peer)


def _folder_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Folders of caches and downloads that gain files or bytes."""
    for (before, old), (after, new) in itertools.pairwise(readings(samples, "folders")):
        known = {folder.path: folder for folder in old}
        for folder in new:
            earlier = known.get(folder.path)
            if earlier is not None and (folder.files > earlier.files or folder.bytes > earlier.bytes):
                gained = f"{folder.path} gains files: {folder.files} with {folder.bytes} bytes"
                yield Motion(after.t, after.t - before.t, "folder", float(max(0, folder.bytes - earlier.bytes)), gained)
