"""The engine's own numbers for a request's window: response fields, else counter differences, else log lines."""

from __future__ import annotations

from typing import Any

from runbook.diagnose.metrics import Reading, counters, from_answers, from_counters, from_log
from runbook.hosts.base import HostError, Mark
from runbook.lang.expressions import Unknown
from runbook.steps.base import Launched, StepContext

COUNTERS_S = 5.0
SCAN_MOST = 2000


class Numbers:
    """Opened before the request, read after it. What cannot be read becomes unknown with its reason, never a number."""

    def __init__(self, ctx: StepContext, launched: Launched | None, base: str, begin: Mark | None) -> None:
        self._ctx = ctx
        self._launched = launched
        self._base = base
        self._begin = begin
        self._sources: dict[str, dict[str, Any]] = dict(launched.profile.metrics) if launched else {}
        self._before = self._counters() if any("counters" in one for one in self._sources.values()) else None

    def read(self, answers: list[Any]) -> dict[str, Any]:
        """{"metrics": by name, "metrics_info": source and n by name}."""
        if not self._sources:
            reason = "a bare url has no profile that knows its numbers" if self._launched is None else "the profile knows no numbers"
            return {"metrics": {}, "metrics_info": {"reason": reason}}
        metrics: dict[str, Any] = {}
        info: dict[str, Any] = {}
        after: dict[str, float] | None = None
        for name, sources in self._sources.items():
            reading = from_answers(sources, answers)
            if reading is None and self._before is not None and "counters" in sources:
                after = self._counters() if after is None else after
                reading = from_counters(sources, self._before, after or {})
            reading = reading or self._from_log(sources)
            reason = str(sources.get("missing") or "no source had a value")
            metrics[name] = reading.value if reading else Unknown(reason)
            info[name] = {"source": reading.source, "n": reading.n} if reading else {"reason": reason}
        return {"metrics": metrics, "metrics_info": info}

    def _counters(self) -> dict[str, float] | None:
        """/metrics as it stands; None when the server does not give it, which most do only when asked to at launch."""
        try:
            answer = self._ctx.host.http.request("GET", f"{self._base}/metrics", timeout_s=COUNTERS_S, cancel=self._ctx.cancel)
        except HostError:
            return None
        if answer.outcome != "answer" or answer.status != 200:
            return None
        return counters(answer.body.decode("utf-8", "replace")) or None

    def _from_log(self, sources: dict[str, Any]) -> Reading | None:
        if self._launched is None or not sources.get("log") or self._begin is None:
            return None
        try:
            report = self._ctx.host.scan(self._launched.state.log, str(sources["log"]), begin=self._begin, most=SCAN_MOST)
        except HostError as problem:
            self._ctx.find("metrics_log_unread", f"the server's log could not be read for its numbers: {problem.summary}")
            return None
        return from_log([match.groups.get("value") for match in report.matches])
