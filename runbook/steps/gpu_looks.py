"""GPU memory beside the looks at a server: the driver's tool takes up to half a minute on a busy host, and nothing waits for it."""

from __future__ import annotations

from runbook.hosts.base import HostError
from runbook.model.sample import Absent, Blind, Outcome
from runbook.steps.base import StepContext
from runbook.steps.exchange import Exchange

EVERY_S = 10.0
BLIND_S = 60.0
"""A tool that did not answer is asked again only after this time."""
LIMIT_S = 90.0
SOON_S = 0.3
"""A quick tool's answer is part of the look that asked for it."""
NOT_ASKED = Blind("not asked")


class GpuLooks:
    """Asks again and again, one question at a time; a host without a tool is asked once."""

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx
        self._due = float("-inf")
        self._exchange: Exchange[Outcome] | None = None

    def ask(self) -> None:
        """Ask, when it is time."""
        if self._exchange is None and self._ctx.clock.monotonic() >= self._due:
            self._exchange = Exchange(self._ctx.cancel, lambda token: self._look())

    def read(self) -> Outcome:
        """What has come since the sample before."""
        if self._exchange is None or not self._exchange.wait(SOON_S if self._due == float("-inf") else 0.0):
            self._due = max(self._due, 0.0)
            return NOT_ASKED
        exchange, self._exchange = self._exchange, None
        exchange.close()
        found = exchange.result()
        wait_s = float("inf") if isinstance(found, Absent) else BLIND_S if isinstance(found, Blind) else EVERY_S
        self._due = self._ctx.clock.monotonic() + wait_s
        return found

    def close(self) -> None:
        """Wait no longer for an answer."""
        if self._exchange is not None:
            self._exchange.close(wait_s=0.0)

    def _look(self) -> Outcome:
        try:
            return self._ctx.host.sample({"gpus": True}, timeout_s=LIMIT_S).gpus
        except HostError as problem:
            return Blind(problem.summary)
