"""What a wait remembers, and what of it the journal keeps: the same, so that a verdict can be derived again from the journal.

look ──> recent (all of the last 120 s) ──> settled: one in 30 s is kept, the log lines of the others are carried on
"""

from __future__ import annotations

from collections import deque

import msgspec

from runbook.diagnose.thin import carry_log
from runbook.model.sample import Absent, Blind, Sample, Seen

KEEP_S = 120.0
"""All samples of this time before now are kept …"""
THIN_S = 30.0
"""… and before that one in this time, a full one where there is one …"""
FULL_WAIT_S = 10.0
"""… for which a cheap one gives way this long."""
MOST_OLD = 240
"""Two hours. What is older is forgotten, but for the first sample and the log's lines."""
SOURCES = tuple(field.name for field in msgspec.structs.fields(Sample) if isinstance(field.default, Blind) and field.name != "link")
DECISIVE = ("stacks", "calls", "collectives", "kernel")
"""Sources that are asked on suspicion only: a sample that has one always stays."""


class Memory:
    """The samples that `judge` sees. Fed with what it let settle, it holds the same."""

    def __init__(self) -> None:
        self._old: list[Sample] = []
        self._recent: deque[Sample] = deque()
        self._kept_at = float("-inf")

    def add(self, sample: Sample) -> list[Sample]:
        """Take a sample in; answers those that have settled: the journal keeps them as they are now.

        One that asked nothing is no observation: it would only stand between two looks that are to be compared.
        """
        if self._recent and asked_nothing(sample) and not isinstance(self._recent[-1].link, Absent):
            return []
        self._recent.append(sample)
        settled = []
        while self._recent[0].t < sample.t - KEEP_S:
            oldest = self._recent.popleft()
            if self._stays(oldest):
                self._old.append(oldest)
                settled.append(oldest)
            else:
                self._recent[0] = carry_log(oldest, self._recent[0])
        while len(self._old) > MOST_OLD:
            self._old[2] = carry_log(self._old.pop(1), self._old[1])
        return settled

    def rest(self) -> list[Sample]:
        """Those that have not settled, oldest first: what the journal still lacks when the wait ends."""
        return list(self._recent)

    def view(self) -> list[Sample]:
        """The samples, oldest first."""
        return [*self._old, *self._recent]

    def _stays(self, sample: Sample) -> bool:
        if any(isinstance(getattr(sample, source), Seen) for source in DECISIVE):
            return True
        enough_s = THIN_S if is_full(sample) else THIN_S + FULL_WAIT_S
        if self._old and sample.t - self._kept_at < enough_s:
            return False
        self._kept_at = sample.t
        return True


def asked_nothing(sample: Sample) -> bool:
    """Whether it carries not one source; that the host answered is no news about a server."""
    outcomes = (getattr(sample, name) for name in SOURCES)
    return not isinstance(sample.link, Absent) and all(isinstance(one, Blind) and one.reason == "not asked" for one in outcomes)


def is_full(sample: Sample) -> bool:
    """Whether it brought what only a full look has."""
    return not (isinstance(sample.locks, Blind) and isinstance(sample.disks, Blind) and isinstance(sample.sockets, Blind))
