"""diagnose: look at a server that is there, and say whether it serves, loads or hangs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from runbook.diagnose.ends import FRONT_S
from runbook.lang.expressions import Unknown
from runbook.model.fields import LaunchRef
from runbook.model.question import Expectation, Question
from runbook.model.sample import Sample
from runbook.steps.base import Launched, Step, StepContext, StepResult
from runbook.steps.checking import Checks
from runbook.steps.patience import OnSuspect, StallAfter, bad_duration, bad_url, seconds_or_auto
from runbook.steps.watching import ServerGoal, Watched, base_url, plain

PACE = ((4.0, 1.0), (float("inf"), 2.0))
"""(until, seconds between looks): the first rates come soon."""


class Diagnose(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Look at a server and say whether it serves (passed), loads (slow, "loading, on track"), hangs, or has crashed.

    It ends as soon as a rule is certain or the server answers as it does when it is ready, else at the end of its time box. Nothing
    is stopped or changed; the health path is asked until its first good answer, and for 3 s more where it asks the workers nothing.
    """

    TYPE: ClassVar[str] = "diagnose"
    TIMEOUT: ClassVar[str] = "1m"
    RESULTS: ClassVar[dict[str, str]] = {"diagnosis": "the verdict with its evidence"}
    EXAMPLE: ClassVar[str] = "diagnose: {server: server, timeout: 60s}"

    server: Annotated[LaunchRef, Meta(description="id of the launch or attach step")]
    url: Annotated[str | None, Meta(description="health address as seen from the host, when it is not the profile's path")] = None
    stall_after: StallAfter = "auto"
    on_suspect: OnSuspect = "collect"

    def problems(self) -> list[tuple[str, str, str]]:
        """An unreadable duration or address."""
        return [*bad_duration(self, "stall_after"), *bad_url(self)]

    def plan(self) -> list[str]:
        """What is looked at."""
        return [f"look at `{self.server}`: processes, threads, log, port, health; change nothing"]

    def run(self, ctx: StepContext) -> StepResult:
        """Look until it is certain or the time is over."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields={"diagnosis": Unknown("check mode")})
        launched = ctx.launched(self.server)
        if launched is None:
            reason = f"`{self.server}` is no server that was launched or attached on this host"
            return StepResult(verdict="undecided", reason=reason, fields={"diagnosis": Unknown(reason)})
        goal = State(ctx, self, launched)
        try:
            diagnosis = ctx.watch(goal)
        finally:
            goal.close()
        return StepResult(
            verdict=diagnosis.verdict,
            kind=diagnosis.kind,
            reason=diagnosis.reason,
            diagnosis=diagnosis,
            fields={"diagnosis": plain(diagnosis)},
        )


class State(ServerGoal):
    """The goal: what is the server's state?"""

    def __init__(self, ctx: StepContext, step: Diagnose, launched: Launched) -> None:
        self._ctx = ctx
        self._step = step
        self._launched = launched
        self.profile = launched.profile
        self.watched: Watched = Watched(ctx, launched)
        self.every_s = PACE[0][1]
        self._began = ctx.clock.now()
        self._box_s = ctx.remaining_s()
        self._usual = ctx.usual(launched)
        self._expect = Expectation(status=launched.profile.health.ready_status)
        health = launched.profile.health
        base = step.url or base_url(launched, None) if step.url or health.path else None  # some have no HTTP at all
        timeout_s, enough_s = float(health.client_timeout), 2 * FRONT_S if launched.profile.front_alone else 0.0
        self._checks = (
            Checks(ctx, base, None, self._expect, default_path=health.path, timeout_s=timeout_s, enough_s=enough_s)
            if base is not None
            else None
        )

    def look(self) -> Sample:
        """The check, when there is a port, and then the server."""
        elapsed = self._ctx.clock.now() - self._began
        self.every_s = next(pace for until, pace in PACE if elapsed < until)
        check: dict[str, Any] = {"check": self._checks.make()} if self._checks is not None else {}
        return msgspec.structs.replace(self.watched.look(), t=self._ctx.clock.now(), **check)

    def question(self, final: bool) -> Question:
        """In which state is it?"""
        return Question(
            about="state",
            since=self._began,
            box_s=self._box_s,
            final=final,
            expect=self._expect,
            path=self._checks.path if self._checks is not None else "",
            usual=self._usual,
            stall_after_s=seconds_or_auto(self._step.stall_after),
            on_suspect=self._step.on_suspect,
            ranks=self._launched.ranks,
            limited_by=self._ctx.limited_by(),
        )

    def close(self) -> None:
        """End what is still under way."""
        super().close()
        if self._checks is not None:
            self._checks.close()
