"""Threads in the journal: most of a server's hundreds sleep, so a row that says the same as in the sample before is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from runbook.model.sample import ProcessSample, Sample, Seen, ThreadSample

Key = tuple[int, int]
"""A process: pid and start time."""


class Packer:
    """Leaves rows out of the samples of one wait, one after the other."""

    def __init__(self) -> None:
        self._known: dict[Key, dict[int, ThreadSample]] = {}

    def pack(self, sample: Sample) -> tuple[Sample, dict[str, list[int]]]:
        """(the sample without rows that are as before, per pid the threads that are gone). A process without rows was not asked."""
        if not isinstance(sample.processes, Seen):
            return sample, {}
        gone: dict[str, list[int]] = {}
        rows = []
        for process in sample.processes.value:
            rows.append(self._packed(process, gone))
        return msgspec.structs.replace(sample, processes=Seen(tuple(rows))), gone

    def _packed(self, process: ProcessSample, gone: dict[str, list[int]]) -> ProcessSample:
        before = self._known.get((process.pid, process.start), {})
        now = {row.tid: row for row in process.threads}
        if not now:
            return process
        self._known[process.pid, process.start] = now
        if left := sorted(before.keys() - now.keys()):
            gone[str(process.pid)] = left
        changed = tuple(row for row in process.threads if before.get(row.tid) != row)
        if before and not changed and not left:
            gone[str(process.pid)] = []  # asked, and all as before
        return msgspec.structs.replace(process, threads=changed)


class Unpacker:
    """Puts them back."""

    def __init__(self) -> None:
        self._known: dict[Key, dict[int, ThreadSample]] = {}

    def unpack(self, sample: Sample, gone: Mapping[str, Sequence[int]]) -> Sample:
        """The sample as it was before it was packed."""
        if not isinstance(sample.processes, Seen):
            return sample
        rows = tuple(self._whole(process, gone.get(str(process.pid))) for process in sample.processes.value)
        return msgspec.structs.replace(sample, processes=Seen(rows))

    def _whole(self, process: ProcessSample, gone: Sequence[int] | None) -> ProcessSample:
        if not process.threads and gone is None:
            return process
        before = self._known.get((process.pid, process.start), {})
        now = {tid: row for tid, row in before.items() if tid not in (gone or ())} | {row.tid: row for row in process.threads}
        self._known[process.pid, process.start] = now
        return msgspec.structs.replace(process, threads=tuple(now[tid] for tid in sorted(now)))
