"""wait_healthy: wait until a server answers its health check, and never longer than it makes sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Union

import msgspec
from msgspec import Meta

from runbook.diagnose import ends
from runbook.diagnose.lines import TimedLine, log_lines, matcher
from runbook.diagnose.phases import rank_number, table, track
from runbook.lang.expressions import Unknown
from runbook.model.fields import LaunchRef, Regex
from runbook.model.profile import Profile
from runbook.model.question import Expectation, Question
from runbook.model.sample import Sample
from runbook.steps.base import Launched, RankPhase, Step, StepContext, StepResult
from runbook.steps.checking import Checks
from runbook.steps.identity import identify
from runbook.steps.patience import OnSuspect, StallAfter, bad_duration, bad_url, seconds_or_auto
from runbook.steps.starting import Starting
from runbook.steps.watching import ServerGoal, Watched, bare_sample, base_url, plain


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
        "phases": "phases of the start: name, start and seconds (counted from the launch), quiet (longest time without progress), ranks",
        "usual": "what earlier starts of this command took here: runs, and shortest_s, median_s, longest_s of `ready` and each of `phases`",
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
    stall_after: StallAfter = "auto"
    on_suspect: OnSuspect = "collect"

    def problems(self) -> list[tuple[str, str, str]]:
        """One server or one url; durations that are neither `auto` nor readable."""
        found = []
        if (self.server is None) == (self.url is None):
            found.append(("", "`wait_healthy` needs exactly one of `server` and `url`", "write for example `server: server`"))
        if self.url is not None and self.expect.info:
            found.append(("expect.info", "`info` needs `server`: a bare url has no profile to ask by", "give the launch step's id"))
        return (
            found
            + bad_url(self)
            + [problem for name in ("interval", "check_timeout", "stall_after") for problem in bad_duration(self, name)]
        )

    def plan(self) -> list[str]:
        """What is asked, and until when."""
        what = f"server `{self.server}`" if self.server else str(self.url)
        asked = (
            what if self.url and self.path is None and "/" in self.url.split("://")[-1] else f"{self.path or 'the health path'} of {what}"
        )
        return [f"check {asked} until it answers as expected; end early when that is impossible"]

    def run(self, ctx: StepContext) -> StepResult:
        """Watch, then ask the server who it is."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields=_unknown("check mode"))
        launched = ctx.launched(self.server) if self.server else None
        if self.server and launched is None:
            reason = f"`{self.server}` was not launched on this host"
            return StepResult(verdict="undecided", reason=reason, fields=_unknown(reason))
        profile = launched.profile if launched else ctx.profile("generic")
        base = self.url or base_url(launched, None)
        if base is None:
            reason = f"the port of `{self.server}` is not known; give its launch step `port:`"
            return StepResult(verdict="failed", reason=reason, fields=_unknown(reason))
        goal = Healthy(ctx, self, profile, launched, base)
        try:
            diagnosis = ctx.watch(goal)
        finally:
            goal.close()
        info: Any = Unknown("the server is not ready")
        took = ""
        if diagnosis.verdict == "passed":
            info, mismatch = identify(ctx, launched, base, self.expect.info)
            took = "" if mismatch else goal.took()
            diagnosis = mismatch or diagnosis
        fields = {**goal.results(), "server_info": info, "diagnosis": plain(diagnosis)}
        reason = diagnosis.reason + took
        return StepResult(verdict=diagnosis.verdict, kind=diagnosis.kind, reason=reason, diagnosis=diagnosis, fields=fields)


class Healthy(ServerGoal):
    """The goal: one look is a sample of the server and, when due, a check that may go on beside the next looks."""

    def __init__(self, ctx: StepContext, step: WaitHealthy, profile: Profile, launched: Launched | None, base: str) -> None:
        self._ctx = ctx
        self._step = step
        self.profile = profile
        self.watched = Watched(ctx, launched) if launched else None
        self._began = ctx.clock.now()
        started = launched.state.started - ctx.host.facts.clock_offset_s if launched else self._began
        self._origin = min(started, self._began)
        self._expect = _expectation(step.expect)
        self._checks = Checks(
            ctx,
            base,
            step.path,
            self._expect,
            default_path=profile.health.path,
            timeout_s=seconds_or_auto(step.check_timeout) or float(profile.health.client_timeout),
            interval_s=seconds_or_auto(step.interval),
        )
        self.every_s = self._checks.pace()
        self._box_s = ctx.remaining_s()
        self._ranks_known = launched.ranks if launched else None
        self._starting = Starting(ctx, launched)
        self._marks: list[TimedLine] = []
        self._ranks: list[RankPhase] = []

    def look(self) -> Sample:
        """The check first: whoever listens when the port is looked at afterwards is who answered."""
        check = self._checks.make()
        self.every_s = self._checks.pace()
        if self.watched is None:
            return bare_sample(self._ctx, check=check)
        sample = msgspec.structs.replace(self.watched.look(), t=self._ctx.clock.now(), check=check)
        read = log_lines([sample], matcher(self.profile))
        self._marks.extend(timed for timed in read if timed.line.begins or timed.line.ends or timed.line.ready)
        self._ranks.extend(_rank_phases(read))
        return sample

    def question(self, final: bool) -> Question:
        """Is it healthy as the step expects?"""
        return Question(
            about="healthy",
            since=self._began,
            box_s=self._box_s,
            final=final,
            expect=self._expect,
            path=self._checks.path,
            usual=self._starting.usual,
            consecutive=self._step.consecutive,
            stall_after_s=seconds_or_auto(self._step.stall_after),
            on_suspect=self._step.on_suspect,
            ranks=self._ranks_known,
            limited_by=self._ctx.limited_by(),
        )

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Phase, and what moved last; its silences are noted on the way."""
        view = self.view(samples, samples[-1].t)
        self._starting.look(view)
        return ends.moved(view)

    def took(self) -> str:
        """Record how long the start took, and say it."""
        results = self.results()
        return self._starting.ready(results["ready_after"], results["phases"], self._checks.count)

    def rank_phases(self) -> Sequence[RankPhase]:
        """Phases that each rank entered and left."""
        return self._ranks

    def close(self) -> None:
        """End a check that is still under way."""
        super().close()
        self._checks.close()

    def results(self) -> dict[str, Any]:
        """The step's own numbers."""
        last, good_at = self._checks.last, self._checks.good_at
        checks = {
            "count": self._checks.count,
            "outcome": last.outcome if last else "none",
            "status": last.status if last else None,
            "latency": last.latency_s if last else None,
            "body_bytes": last.body_bytes if last else None,
        }
        good = round(good_at - self._origin, 3) if good_at is not None else Unknown("it never answered as expected")
        phases = self._starting.with_silences(table(track(self._marks), self._origin))
        usual = self._starting.usual
        known = plain(usual) if usual is not None else Unknown("no earlier start of this command is known here")
        return {"ready_after": good, "phases": phases, "usual": known, "checks": checks}


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
