"""Watching a command of `run` while it runs: its processes, and what it prints as if that were its log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runbook.hosts.base import Completed, LaunchState, ProcessId
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample, Seen
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Launched, StepContext
from runbook.steps.exchange import Exchange
from runbook.steps.printed import Printed
from runbook.steps.watching import ServerGoal, Watched, bare_sample

EVERY_S = 2.0


class Running(ServerGoal):
    """The goal: the command's end. Meanwhile its processes are looked at as a server's are."""

    def __init__(
        self,
        ctx: StepContext,
        process: ProcessId | None,
        call: Exchange[Completed],
        printed: Printed,
        stall_after_s: float | None,
        on_suspect: str,
        began: float,
    ) -> None:
        self.every_s = 0.05  # a look waits for the end by itself
        self.profile: Profile = ctx.profile("generic")
        self.watched = Watched(ctx, _as_server(ctx, process, self.profile)) if process is not None else None
        self._ctx = ctx
        self._call = call
        self._printed = printed
        self._stall_after_s = stall_after_s
        self._on_suspect = on_suspect
        self._began = began
        self._box_s = ctx.remaining_s() + ctx.clock.now() - began

    def look(self) -> Sample:
        """Its processes and its output; nothing once it has ended."""
        if self._call.wait(min(EVERY_S, max(0.0, self._ctx.remaining_s()))) or self.watched is None:
            return bare_sample(self._ctx)
        return msgspec.structs.replace(self.watched.look(), t=self._ctx.clock.now(), log=Seen(self._printed.gained()))

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """Its end, or a hang that is proven, or one that took longer than the author allows."""
        if self._call.wait(0.0):
            return Diagnosis(verdict="passed", rule="run_ended", reason="it has ended")
        answer = super().judge(samples, now, final=final)
        if final or answer is None:
            return answer
        hung = answer.verdict == "hung" and (answer.confidence == "proven" or self._stall_after_s is not None)
        return answer if hung else None

    def question(self, final: bool) -> Question:
        """In which state is it?"""
        return Question(
            about="state",
            since=self._began,
            box_s=self._box_s,
            final=final,
            stall_after_s=self._stall_after_s,
            on_suspect=self._on_suspect,
            limited_by=self._ctx.limited_by(),
        )


def _as_server(ctx: StepContext, process: ProcessId, profile: Profile) -> Launched:
    state = LaunchState(
        id=ctx.step,
        pid=process.pid,
        start=process.start,
        sid=process.pid,
        log="",
        log_inode=0,
        log_offset=0,
        argv=(),
        cwd="",
        interpreter="",
        started=ctx.clock.now() + ctx.host.facts.clock_offset_s,
    )
    return Launched(step=ctx.step, host=ctx.host.name, state=state, profile=profile, port=None, env={}, run="")
