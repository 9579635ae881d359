"""wait_gpu_free: wait until every selected GPU is below a memory ceiling, or say who holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.hosts.base import CallTimeout, GpuReport, RemoteError
from runbook.lang.expressions import Unknown
from runbook.model.gpu import GpuSample
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Absent, Blind, Outcome, Sample, Seen
from runbook.model.units import Duration, Size, format_size
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Step, StepContext, StepResult
from runbook.steps.watching import Viewed, bare_sample, plain

TOOL_S = 60.0
"""The driver's tool takes up to half a minute on a busy host with eight GPUs; beyond this it counts as blind."""


class WaitGpuFree(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until every selected GPU is below a memory ceiling, for `stable_for` without a break.

    When the time box ends first: resource_held, with each holder's pid, user, title and age, or the words that nobody is visible.
    Without a tool that can be asked: undecided.
    """

    TYPE: ClassVar[str] = "wait_gpu_free"
    TIMEOUT: ClassVar[str] = "5m"
    RESULTS: ClassVar[dict[str, str]] = {
        "gpus": "index, name, used and total bytes, holders and faults of each GPU, as seen last",
        "freed_after": "seconds until all were below the ceiling for good",
        "curve": "[seconds, used bytes over all GPUs] of each look",
        "diagnosis": "the verdict with its evidence",
    }
    EXAMPLE: ClassVar[str] = "wait_gpu_free: {below: 1GiB, stable_for: 3s, timeout: 3m}"

    below: Annotated[Size, Meta(description="ceiling per GPU")] = Size(2**30)
    gpus: Annotated[Union[Literal["all"], list[int]], Meta(description="`all`, or a list of indices; of `all` those the host names")] = (
        "all"
    )
    stable_for: Annotated[Duration, Meta(description="how long it must stay below")] = Duration(3)
    tool: Annotated[Literal["auto", "nvidia-smi"], Meta(description="what reports GPU memory")] = "auto"
    when_missing: Annotated[Literal["undecided", "skip"], Meta(description="what a host without such a tool means")] = "undecided"

    def problems(self) -> list[tuple[str, str, str]]:
        """An empty list of GPUs."""
        if self.gpus == []:
            return [("gpus", "an empty list waits for nothing", "write `all`, or indices as in `[0, 1]`")]
        return []

    def plan(self) -> list[str]:
        """What is waited for."""
        which = "all GPUs" if self.gpus == "all" else f"GPUs {', '.join(map(str, self.gpus))}"
        return [f"wait until {which} use less than {format_size(self.below)} each for {self.stable_for}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Look until they are free. In check mode one look, and no wait."""
        goal = GpusFree(ctx, self)
        if ctx.check_mode:
            goal.look()
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}", fields=goal.results(None))
        diagnosis = ctx.watch(goal)
        if diagnosis.rule == "gpu_tool_missing" and self.when_missing == "skip":
            ctx.find("no_gpu_tool", diagnosis.reason)
            return StepResult(verdict="passed", reason=f"{diagnosis.reason}; `when_missing: skip`", fields=goal.results(diagnosis))
        return StepResult(
            verdict=diagnosis.verdict, kind=diagnosis.kind, reason=diagnosis.reason, diagnosis=diagnosis, fields=goal.results(diagnosis)
        )


class GpusFree(Viewed):
    """The goal: one look is one answer of the driver's tool."""

    def __init__(self, ctx: StepContext, step: WaitGpuFree) -> None:
        self.every_s = min(2.0, max(0.2, float(step.stable_for) / 3))
        self._ctx = ctx
        self._indices = ctx.host.gpu_indices if step.gpus == "all" else list(step.gpus)
        self._below = int(step.below)
        self._stable_s = float(step.stable_for)
        self._began = ctx.clock.now()
        self._box_s = ctx.remaining_s()
        self._curve: list[tuple[float, int]] = []
        self._last: tuple[GpuSample, ...] = ()
        self._low_since: float | None = None
        self._why = "the GPUs were never seen"
        self._kernel = False
        self.profile = Profile(profile="generic")

    def look(self) -> Sample:
        """GPU memory and holders. A tool that does not answer in time is blindness."""
        limit_s = max(5.0, min(TOOL_S, self._ctx.remaining_s()))
        try:
            report = self._ctx.host.gpus(self._indices, limit_s)
        except (CallTimeout, RemoteError) as problem:
            report = GpuReport(blind=problem.summary)
        outcome = _outcome(self._without_kept(report))
        self._remember(outcome)
        more = {"kernel": self._lines()} if self._kernel else {}
        self._kernel = False
        return bare_sample(self._ctx, gpus=outcome, **more)

    def _without_kept(self, report: GpuReport) -> GpuReport:
        """Without the memory of servers that may be taken over: their launch step decides on them."""
        reuse = self._ctx.reuse
        if reuse is None:
            return report
        kept = {process.pid for process in self._ctx.host.processes(reuse.run) if process.run in reuse.runs}
        return msgspec.structs.replace(report, gpus=tuple(_less(gpu, kept) for gpu in report.gpus))

    def _lines(self) -> Outcome:
        try:
            return self._ctx.host.sample({"kernel": True}).kernel
        except (CallTimeout, RemoteError) as problem:
            return Blind(problem.summary)

    def question(self, final: bool) -> Question:
        """Are they free?"""
        return Question(
            about="gpu_free",
            since=self._began,
            box_s=self._box_s,
            final=final,
            below=self._below,
            stable_for_s=self._stable_s,
            limited_by=self._ctx.limited_by(),
        )

    def want(self, looks: tuple[str, ...]) -> None:
        """Of all looks only the kernel's lines say something about a GPU that nobody uses."""
        self._kernel = self._kernel or "kernel" in looks

    def inquiring(self) -> bool:
        """Nothing goes on beside the looks."""
        return False

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """How much is still held."""
        if not self._last:
            return None, self._why
        held = [f"GPU {gpu.index} {format_size(gpu.used)}" for gpu in self._last if gpu.used >= self._below]
        return None, "held: " + ", ".join(held) if held else "all below the ceiling"

    def results(self, diagnosis: Diagnosis | None) -> dict[str, Any]:
        """The step's own numbers."""
        unseen = Unknown(self._why)
        free = diagnosis is not None and diagnosis.verdict == "passed" and self._low_since is not None
        after = round((self._low_since or 0.0) - self._began, 3) if free else Unknown("they were not free")
        return {
            "gpus": plain(self._last) if self._last else unseen,
            "freed_after": after,
            "curve": [list(point) for point in self._curve] if self._curve else unseen,
            "diagnosis": plain(diagnosis) if diagnosis is not None else Unknown("check mode"),
        }

    def _remember(self, outcome: Seen[tuple[GpuSample, ...]] | Absent | Blind) -> None:
        if not isinstance(outcome, Seen):
            self._why, self._low_since = outcome.reason, None
            return
        now = self._ctx.clock.now()
        self._last = outcome.value
        self._curve.append((round(now - self._began, 3), sum(gpu.used for gpu in outcome.value)))
        is_low = all(gpu.used < self._below for gpu in outcome.value)
        self._low_since = (self._low_since or now) if is_low else None


def _outcome(report: GpuReport) -> Seen[tuple[GpuSample, ...]] | Absent | Blind:
    if report.missing:
        return Absent(report.blind or "there is no tool that reports GPU memory on this host")
    if report.blind:
        return Blind(report.blind)
    return Seen(report.gpus) if report.gpus else Absent("the tool sees no GPU")


def _less(gpu: GpuSample, kept: set[int]) -> GpuSample:
    """A GPU as if these processes were gone: without what they hold, and where that is not known and they are all, with nothing."""
    ours = [holder for holder in gpu.holders if holder.pid in kept]
    others = tuple(holder for holder in gpu.holders if holder.pid not in kept)
    if not ours:
        return gpu
    known = all(holder.used is not None for holder in ours)
    used = gpu.used - sum(holder.used or 0 for holder in ours) if known or others else 0
    return msgspec.structs.replace(gpu, used=max(0, used), holders=others)
