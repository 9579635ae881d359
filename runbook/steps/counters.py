"""The engine's own counters of work, asked beside the looks at its server: an idle server and a hung one differ by them alone."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose.metrics import counters
from runbook.hosts.base import CancelToken, HostError, HttpAnswer
from runbook.model.sample import Absent, Blind, EngineSample, Outcome, Seen
from runbook.steps.base import Launched, StepContext
from runbook.steps.exchange import Exchange

EVERY_S = 10.0
TIMEOUT_S = 5.0
NOT_ASKED = Blind("not asked")


class EngineCounters:
    """Asks the path that the profile names, which has no side effects; where there is none, never."""

    def __init__(self, ctx: StepContext, launched: Launched) -> None:
        self._ctx = ctx
        self._names = launched.profile.engine
        known = any((self._names.tokens, self._names.steps, self._names.running, self._names.waiting))
        self._url = f"http://127.0.0.1:{launched.port}{self._names.path}" if known and launched.port is not None else None
        self._due = float("-inf")
        self._exchange: Exchange[HttpAnswer] | None = None

    def read(self) -> Outcome:
        """What has come since the sample before; Blind("not asked") while nothing has."""
        now = self._ctx.clock.monotonic()
        if self._url is None:
            return NOT_ASKED
        if self._exchange is None:
            if now >= self._due:
                self._due = now + EVERY_S
                self._exchange = Exchange(self._ctx.cancel, self._ask)
            return NOT_ASKED
        if not self._exchange.wait(0.0):
            return NOT_ASKED
        exchange, self._exchange = self._exchange, None
        exchange.close()
        try:
            return self._told(exchange.result())
        except HostError as problem:
            return Blind(problem.summary)

    def close(self) -> None:
        """End a question that is still under way."""
        if self._exchange is not None:
            self._exchange.close()

    def _ask(self, cancel: CancelToken) -> HttpAnswer:
        return self._ctx.host.http.request("GET", self._url or "", timeout_s=TIMEOUT_S, cancel=cancel)

    def _told(self, answer: HttpAnswer) -> Outcome:
        if answer.outcome == "refused":
            return Absent("it does not listen yet")
        if answer.outcome != "answer":
            return Blind(f"{self._names.path}: {answer.outcome}")
        found = counters(answer.body.decode("utf-8", "replace")) if answer.status == 200 else {}
        if not found:
            self._url = None  # most engines count only when they were launched so
            return Absent(f"{self._names.path} gives no counters (status {answer.status})")
        return Seen(
            EngineSample(
                tokens=_sum(found, self._names.tokens),
                steps=_sum(found, self._names.steps),
                running=_sum(found, self._names.running),
                waiting=_sum(found, self._names.waiting),
            )
        )


def _sum(found: dict[str, float], names: Sequence[str]) -> int | None:
    """The counters together; None when not one of them is there."""
    there = [found[name] for name in names if name in found]
    return int(sum(there)) if there else None
