"""A health check that is made again and again beside the looks at a server, never more than one at a time."""

from __future__ import annotations

from urllib.parse import urlsplit

from runbook.hosts.base import CallTimeout, CancelToken, HttpAnswer, RemoteError
from runbook.model.question import Expectation
from runbook.model.sample import Blind, CheckSample, Seen
from runbook.model.units import format_duration
from runbook.steps.base import StepContext
from runbook.steps.exchange import Exchange
from runbook.steps.watching import answer_check

ANSWER_SOON_S = 1.2
"""A look waits this long for its check: SGLang's takes one second by design."""
PACE = ((10.0, 0.5), (60.0, 1.0), (600.0, 2.0), (float("inf"), 5.0))
"""(until, seconds between looks): quick at first, since many servers are up at once; patient in a long load."""
ANSWERING_PACE_S = 1.0


class Checks:
    """Asks `base` + `path` as often as `interval_s` says, by itself without one. `count`, `last`, `good_at` tell what came.

    A `base` that names a path, be it `/` alone, is asked as it is written when there is no `path`.

    `enough_s`: no check is made any more so many seconds after the first good answer, since a check may have side effects.
    """

    def __init__(
        self,
        ctx: StepContext,
        base: str,
        path: str | None,
        expect: Expectation,
        *,
        default_path: str,
        timeout_s: float,
        interval_s: float | None = None,
        enough_s: float = float("inf"),
    ) -> None:
        self._ctx = ctx
        own = urlsplit(base).path
        self.path = path if path is not None else own or default_path
        self.url = base if own and path is None else base.rstrip("/") + self.path
        self._expect = expect
        self._timeout_s = timeout_s
        self._interval_s = interval_s
        self._enough_s = enough_s
        self._exchange: Exchange[HttpAnswer] | None = None
        self._began = self._exchange_at = self._due_at = ctx.clock.now()
        self.count = 0
        self.last: CheckSample | None = None
        self.good_at: float | None = None

    def make(self) -> Seen[CheckSample] | Blind:
        """The check's answer when it came; Blind while none is due or it is still under way."""
        now = self._ctx.clock.now()
        if self._exchange is None:
            if now < self._due_at or self._ctx.remaining_s() <= 0 or self._has_enough(now):
                return Blind("not asked")
            self._exchange = Exchange(self._ctx.cancel, self._ask)
            self._exchange_at = now
        if not self._exchange.wait(min(ANSWER_SOON_S, max(0.0, self._ctx.remaining_s()))):
            return Blind(f"no answer yet after {format_duration(self._ctx.clock.now() - self._exchange_at)}")
        exchange, self._exchange = self._exchange, None
        self._due_at = self._exchange_at + self._interval_s if self._interval_s is not None else self._ctx.clock.now()
        exchange.close()
        self.count += 1
        try:
            self.last = answer_check(self.url, exchange.result(), self._expect)
        except (CallTimeout, RemoteError) as problem:
            return Blind(problem.summary)
        if self.last.matched and self.good_at is None:
            self.good_at = self._ctx.clock.now()
        return Seen(self.last)

    def _has_enough(self, now: float) -> bool:
        return self.good_at is not None and now > self.good_at + self._enough_s

    def pace(self) -> float:
        """Seconds until the next look is worth while."""
        if self._interval_s is not None:
            return min(self._interval_s, PACE[-1][1])
        if self.last is not None and self.last.outcome == "answer":
            return ANSWERING_PACE_S
        elapsed = self._ctx.clock.now() - self._began
        return next(pace for until, pace in PACE if elapsed < until)

    def close(self) -> None:
        """End a check that is still under way."""
        if self._exchange is not None:
            self._exchange.close()

    def _ask(self, cancel: CancelToken) -> HttpAnswer:
        return self._ctx.host.http.request("GET", self.url, timeout_s=self._timeout_s, cancel=cancel)
