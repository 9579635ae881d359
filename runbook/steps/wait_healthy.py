"""wait_healthy: wait until a server answers its health check, and never longer than it makes sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Union
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from runbook.diagnose.judge import judge, moved
from runbook.diagnose.lines import TimedLine, log_lines, matcher
from runbook.diagnose.phases import rank_number, table, track
from runbook.hosts.base import CallTimeout, CancelToken, HttpAnswer, RemoteError
from runbook.lang.expressions import Unknown
from runbook.model.fields import LaunchRef, Regex
from runbook.model.profile import Profile
from runbook.model.sample import Blind, CheckSample, Expectation, Question, Sample, Seen
from runbook.model.units import Duration, UnitError, format_duration
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Launched, RankPhase, Step, StepContext, StepResult
from runbook.steps.identity import identify
from runbook.steps.watching import Exchange, Watched, answer_check, bare_sample, base_url, plain

ANSWER_SOON_S = 1.2
"""A look waits this long for its check: SGLang's takes one second by design."""
PACE = ((10.0, 0.5), (60.0, 1.0), (600.0, 2.0), (float("inf"), 5.0))
"""(until, seconds between looks): quick at first, since many servers are up at once; patient in a long load."""
ANSWERING_PACE_S = 1.0


class ExpectHealthy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a healthy answer is."""

    status: Annotated[Union[int, list[int]], Meta(description="status code, or a list of them")] = 200
    body: Annotated[Regex | None, Meta(description="searched in the body; many engines answer with an empty one")] = None
    json: Annotated[Any, Meta(description="a subset of the body's JSON")] = None
    info: Annotated[dict[str, Any], Meta(description="a subset of what the server says about itself once it is ready")] = {}


class WaitHealthy(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until a server is healthy; end early on every verdict that is certain.

    The server is watched meanwhile: log, processes, memory, port. A check that can never match ends as wrong_check, a dead server
    as crashed with its first cause, somebody else's server as wrong_server. When the time box ends: slow while progress is seen,
    else undecided. Once ready, the server is asked who it is; another model or port than launched is invalid_experiment.
    """

    TYPE: ClassVar[str] = "wait_healthy"
    TIMEOUT: ClassVar[str] = "60m"
    SUSPENDS: ClassVar[bool] = True
    RESULTS: ClassVar[dict[str, str]] = {
        "ready_after": "seconds from the launch (of a bare `url`: from the step's start) to the first good answer",
        "phases": "phases of the start: name, start and seconds (counted from the launch), ranks",
        "checks": "count, and of the last one: outcome, status, latency, body_bytes",
        "server_info": "what the server says about itself",
        "diagnosis": "the verdict with its evidence",
    }
    EXAMPLE: ClassVar[str] = "id: up\nwait_healthy: {server: server, timeout: 45m, expect: {status: 200}}"

    server: Annotated[LaunchRef | None, Meta(description="id of the launch to wait for")] = None
    url: Annotated[str | None, Meta(description="a server that this run did not launch: only the check is made")] = None
    path: Annotated[str | None, Meta(description="health path; the profile's when left out")] = None
    expect: Annotated[ExpectHealthy, Meta(description="what a healthy answer is")] = ExpectHealthy()
    interval: Annotated[str, Meta(description="time between checks, or `auto`: half a second at first, up to five later")] = "auto"
    consecutive: Annotated[int, Meta(description="good answers in a row that are needed", ge=1)] = 1
    check_timeout: Annotated[str, Meta(description="time that one check may take, or `auto`: the profile's")] = "auto"

    def problems(self) -> list[tuple[str, str, str]]:
        """One server or one url; durations that are neither `auto` nor readable."""
        found = []
        if (self.server is None) == (self.url is None):
            found.append(("", "`wait_healthy` needs exactly one of `server` and `url`", "write for example `server: server`"))
        if self.url is not None and self.expect.info:
            found.append(("expect.info", "`info` needs `server`: a bare url has no profile to ask by", "give the launch step's id"))
        for name in ("interval", "check_timeout"):
            text = getattr(self, name)
            if text != "auto" and "${{" not in text:
                try:
                    Duration.parse(text)
                except UnitError as problem:
                    found.append((name, str(problem), problem.hint or "write `auto` or for example `2s`"))
        return found

    def plan(self) -> list[str]:
        """What is asked, and until when."""
        what = f"server `{self.server}`" if self.server else str(self.url)
        return [f"check {self.path or 'the health path'} of {what} until it answers as expected; end early when that is impossible"]

    def run(self, ctx: StepContext) -> StepResult:
        """Watch, then ask the server who it is."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields=_unknown("check mode"))
        launched = ctx.launched(self.server) if self.server else None
        if self.server and launched is None:
            reason = f"`{self.server}` was not launched on this host"
            return StepResult(verdict="undecided", reason=reason, fields=_unknown(reason))
        profile = launched.profile if launched else ctx.profile("generic")
        base = base_url(launched, self.url)
        if base is None:
            reason = f"the port of `{self.server}` is not known; give its launch step `port:`"
            return StepResult(verdict="failed", reason=reason, fields=_unknown(reason))
        goal = Healthy(ctx, self, profile, launched, base)
        try:
            diagnosis = ctx.watch(goal)
        finally:
            goal.close()
        info: Any = Unknown("the server is not ready")
        if diagnosis.verdict == "passed":
            info, mismatch = identify(ctx, launched, base, self.expect.info)
            diagnosis = mismatch or diagnosis
        fields = {**goal.results(), "server_info": info, "diagnosis": plain(diagnosis)}
        return StepResult(verdict=diagnosis.verdict, kind=diagnosis.kind, reason=diagnosis.reason, diagnosis=diagnosis, fields=fields)


class Healthy:
    """The goal: one look is a sample of the server and, when due, a check that may go on beside the next looks."""

    def __init__(self, ctx: StepContext, step: WaitHealthy, profile: Profile, launched: Launched | None, base: str) -> None:
        self._ctx = ctx
        self._profile = profile
        self._watched = Watched(ctx, launched) if launched else None
        self._began = ctx.clock.now()
        started = launched.state.started - ctx.host.facts.clock_offset_s if launched else self._began
        self._origin = min(started, self._began)
        path = step.path if step.path is not None else urlsplit(base).path or profile.health.path
        self._url = base if urlsplit(base).path and step.path is None else base + path
        self._path = path
        self._expect = _expectation(step.expect)
        self._consecutive = step.consecutive
        self._interval = None if step.interval == "auto" else float(Duration.parse(step.interval))
        auto = step.check_timeout == "auto"
        self._timeout_s = float(profile.health.client_timeout) if auto else float(Duration.parse(step.check_timeout))
        self.every_s = PACE[0][1]
        self._box_s = ctx.remaining_s()
        self._exchange: Exchange[HttpAnswer] | None = None
        self._exchange_at = self._due_at = self._began
        self._count = 0
        self._last: CheckSample | None = None
        self._good_at: float | None = None
        self._marks: list[TimedLine] = []
        self._ranks: list[RankPhase] = []

    def look(self) -> Sample:
        """The check first: whoever listens when the port is looked at afterwards is who answered."""
        check = self._check()
        self.every_s = self._pace()
        if self._watched is None:
            return bare_sample(self._ctx, check=check)
        sample = msgspec.structs.replace(self._watched.look(), t=self._ctx.clock.now(), check=check)
        read = log_lines([sample], matcher(self._profile))
        self._marks.extend(timed for timed in read if timed.line.begins or timed.line.ends or timed.line.ready)
        self._ranks.extend(_rank_phases(read))
        return sample

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """What the samples prove."""
        return judge(samples, self._profile, self._question(final), now)

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Phase, and what moved last."""
        return moved(samples, self._profile, self._question(False), samples[-1].t)

    def rank_phases(self) -> Sequence[RankPhase]:
        """Phases that each rank entered and left."""
        return self._ranks

    def close(self) -> None:
        """End a check that is still under way."""
        if self._exchange is not None:
            self._exchange.close()

    def results(self) -> dict[str, Any]:
        """The step's own numbers."""
        last = self._last
        checks = {
            "count": self._count,
            "outcome": last.outcome if last else "none",
            "status": last.status if last else None,
            "latency": last.latency_s if last else None,
            "body_bytes": last.body_bytes if last else None,
        }
        good = round(self._good_at - self._origin, 3) if self._good_at is not None else Unknown("it never answered as expected")
        return {"ready_after": good, "phases": table(track(self._marks), self._origin), "checks": checks}

    def _pace(self) -> float:
        if self._interval is not None:
            return min(self._interval, PACE[-1][1])
        if self._last is not None and self._last.outcome == "answer":
            return ANSWERING_PACE_S
        elapsed = self._ctx.clock.now() - self._began
        return next(pace for until, pace in PACE if elapsed < until)

    def _question(self, final: bool) -> Question:
        return Question(
            about="healthy",
            since=self._began,
            box_s=self._box_s,
            final=final,
            expect=self._expect,
            path=self._path,
            consecutive=self._consecutive,
            limited_by=self._ctx.limited_by(),
        )

    def _check(self) -> Seen[CheckSample] | Blind:
        now = self._ctx.clock.now()
        if self._exchange is None:
            if now < self._due_at:
                return Blind("not asked")
            self._exchange = Exchange(self._ctx.cancel, self._ask)
            self._exchange_at = now
        if not self._exchange.wait(min(ANSWER_SOON_S, max(0.0, self._ctx.remaining_s()))):
            return Blind(f"no answer yet after {format_duration(self._ctx.clock.now() - self._exchange_at)}")
        exchange, self._exchange = self._exchange, None
        self._due_at = self._exchange_at + self._interval if self._interval is not None else self._ctx.clock.now()
        exchange.close()
        self._count += 1
        try:
            self._last = answer_check(self._url, exchange.result(), self._expect)
        except (CallTimeout, RemoteError) as problem:
            return Blind(problem.summary)
        if self._last.matched and self._good_at is None:
            self._good_at = self._ctx.clock.now()
        return Seen(self._last)

    def _ask(self, cancel: CancelToken) -> HttpAnswer:
        return self._ctx.host.http.request("GET", self._url, timeout_s=self._timeout_s, cancel=cancel)


def _rank_phases(lines: Sequence[TimedLine]) -> Iterator[RankPhase]:
    """What the lines of ranks mark. Lines without a rank's name are the server's own, whose phases `moved` tells."""
    for t, line in lines:
        if line.rank:
            number = rank_number(line.rank)
            yield from (RankPhase(t, phase, line.rank, number, ended=True) for phase in line.ends)
            yield from (RankPhase(t, phase, line.rank, number) for phase in line.begins)


def _expectation(expect: ExpectHealthy) -> Expectation:
    status = (expect.status,) if isinstance(expect.status, int) else tuple(expect.status)
    return Expectation(status=status, body=expect.body, json=expect.json, info=expect.info)


def _unknown(reason: str) -> dict[str, Any]:
    return {name: Unknown(reason) for name in WaitHealthy.RESULTS if name != "diagnosis"}
