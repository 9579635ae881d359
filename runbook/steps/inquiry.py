"""What a suspicion asks for: counters first, then stacks and collectives twice, 10 s apart. It stops nothing and kills nothing.

idle ── want ──> counting ── full look ──> looking(1) ── answer ──> apart ── 10 s, full look ──> looking(2) ── answer ──> idle
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runbook.hosts.base import HostError, ProcessId
from runbook.model.sample import Absent, Blind, Outcome, Sample, Seen
from runbook.steps.base import StepContext
from runbook.steps.exchange import Exchange

APART_S = 10.5
"""Between the two looks that are compared: by either clock at least the ten seconds that the rules ask for."""
AGAIN_S, MOST_AGAIN_S = 20.0, 3600.0
"""A suspicion that lasts is looked into again after this time, and then after twice as long each time."""
MOST_PROCESSES = 64
TWICE = frozenset({"stacks", "collectives"})
"""Looks that say something only by their difference."""


class Inquiry:
    """The looks of one suspicion after another. What they bring is put into the samples, so that `judge` decides and can replay."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._wanted: frozenset[str] = frozenset()
        self._look = 0
        self._counted = False
        self._due = float("-inf")
        self._ended = float("-inf")
        self._again_s = AGAIN_S
        self._exchange: Exchange[dict[str, Outcome]] | None = None

    def want(self, looks: tuple[str, ...]) -> None:
        """Begin, unless one is under way or has just ended; what was not wanted before begins at once."""
        now = self._ctx.clock.monotonic()
        fresh = bool(frozenset(looks) - self._wanted)
        if self.under_way or not looks or (now - self._ended < self._again_s and not fresh):
            return
        self._again_s = AGAIN_S if fresh else min(2 * self._again_s, MOST_AGAIN_S)
        self._wanted = frozenset(looks)
        self._look, self._counted, self._due = 1, False, now

    @property
    def under_way(self) -> bool:
        """Whether more is to come."""
        return self._look > 0

    @property
    def counts(self) -> bool:
        """Whether the next sample must be a full one: the counters are read before each look."""
        return self.under_way and self._exchange is None and not self._counted and self._ctx.clock.monotonic() >= self._due

    @property
    def kernel(self) -> bool:
        """Whether it shall bring the kernel's lines too."""
        return self.counts and "kernel" in self._wanted

    def join(self, sample: Sample, counted: bool) -> Sample:
        """Take a sample in, with what has been brought since the one before."""
        if not self.under_way:
            return sample
        if self._exchange is not None:
            return self._answered(sample)
        self._counted = self._counted or (counted and self._ctx.clock.monotonic() >= self._due)
        if not self._counted:
            return sample
        if not self._wanted & TWICE:
            self._end()
            return sample
        look, targets = self._look, _targets(sample)
        self._exchange = Exchange(self._ctx.cancel, lambda token: self._closer(targets, look))
        return sample

    def close(self) -> None:
        """End a look that is still under way."""
        if self._exchange is not None:
            self._exchange.close(wait_s=0.0)
        self._exchange = None
        self._look = 0

    def _answered(self, sample: Sample) -> Sample:
        exchange = self._exchange
        if exchange is None or not exchange.wait(0.0):
            return sample
        self._exchange = None
        found = exchange.result()
        exchange.close()
        if self._look == 1:
            self._look, self._counted, self._due = 2, False, self._ctx.clock.monotonic() + APART_S
        else:
            self._end()
        return msgspec.structs.replace(sample, **found)

    def _end(self) -> None:
        self._look, self._ended = 0, self._ctx.clock.monotonic()

    def _closer(self, targets: Sequence[tuple[ProcessId, int | None]], look: int) -> dict[str, Outcome]:
        """What each wanted source says, by its field of the sample. One that fails leaves the others alone."""
        ask = {"stacks": self._ctx.host.stacks, "collectives": self._ctx.host.collectives}
        found: dict[str, Outcome] = {}
        for name in sorted(self._wanted & TWICE, reverse=True):
            try:
                found[name] = ask[name](targets, look) if targets else Absent("no process is left")
            except HostError as problem:
                found[name] = Blind(problem.summary)
        return found


def _targets(sample: Sample) -> list[tuple[ProcessId, int | None]]:
    """The living processes with their ranks, ranks first."""
    if not isinstance(sample.processes, Seen):
        return []
    alive = [process for process in sample.processes.value if process.state not in "ZX"]
    alive.sort(key=lambda process: (process.rank is None, process.rank or 0, process.start))
    return [(ProcessId(process.pid, process.start), process.rank) for process in alive[:MOST_PROCESSES]]
