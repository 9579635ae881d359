"""expect_probe: did the probes of a patch fire in a window, and if not, what does the silence mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, to_builtins

from runbook.model.fields import PatchRef, StepRef
from runbook.model.sample import Sample, Seen
from runbook.model.units import Duration, Size
from runbook.model.verdict import Diagnosis, Evidence, Finding
from runbook.probes.explanations import IMPORT_FAILED, REPLAYED
from runbook.probes.outcome import Outcome, by_process, judge
from runbook.probes.reading import Armed
from runbook.probes.view import View
from runbook.steps.base import Patched, Step, StepContext, StepResult, Window
from runbook.steps.grep import Count
from runbook.steps.probe_look import ProbeLook
from runbook.steps.probe_tensors import fetch_tensors


class ExpectProbe(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read what the probes of a patch wrote in a window, and say what their silence means.

    `fired`: hits as data. `not_reached`: the running server loaded the patched file, there was no hit, and every other
    explanation is excluded: evidence. `not_armed`: it did not load this file, so the experiment is invalid. `unseen`: silence
    that can be explained otherwise (bucket used up, graph replay, nothing readable): undecided.
    """

    TYPE: ClassVar[str] = "expect_probe"
    RESULTS: ClassVar[dict[str, str]] = {
        "outcome": "fired, not_reached, not_armed or unseen",
        "hits": "one mapping a hit: the shown values, probe, pid, process_start, rank, seq, time, saved; sorted by time, rank, seq",
        "imports": "one mapping a process that loaded the patched file: pid, start, rank, file, sha, time, how",
        "excluded": "each other explanation of a silence, and what excludes it",
        "left": "the explanations that nothing excludes",
        "missing": "of `fired`: why there may be more hits than those, as a graph that replays the place",
        "ranks": "one mapping a process that loaded the patched file: pid, start, rank, outcome, hits (their number), reason",
        "tensors": "one mapping a saved tensor: name, file (in the run folder), on_host, shape, dtype, bytes, probe, pid, rank, seq; note",
    }
    EXAMPLE: ClassVar[str] = "expect_probe: {probe: taps, since: chat, until: chat}"

    probe: Annotated[PatchRef, Meta(description="the patch step")]
    since: Annotated[StepRef, Meta(description="the window begins where that step began")] = "start"
    until: Annotated[StepRef | None, Meta(description="and ends where that step ended and 2 s more; left out: now")] = None
    expect: Annotated[Literal["fired", "not_reached", "armed"], Meta(description="armed: the server has loaded the patched file")] = "fired"
    count: Annotated[Count, Meta(description="bounds on the number of hits")] = Count(min=1)
    wait: Annotated[Duration, Meta(description="how long to wait for it")] = Duration(10)
    ranks: Annotated[Literal["any", "all"], Meta(description="all: every rank must have hit")] = "any"
    fetch: Annotated[Size, Meta(description="saved tensors are fetched into the evidence, so many bytes in all")] = Size(64 * 2**20)

    def plan(self) -> list[str]:
        """The window and the expectation."""
        window = f"since {self.since}" + (f" until {self.until}" if self.until else "")
        return [f"read the probes of `{self.probe}`, {window}, expect {self.expect}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Look until the expectation is met or `wait` is over."""
        patched = ctx.patched(self.probe)
        if patched is None:
            state = "check mode" if ctx.check_mode else "the patch step did not run or did not pass"
            return StepResult(verdict="passed" if ctx.check_mode else "undecided", reason=f"`{self.probe}` has patched nothing: {state}")
        if not patched.side_file:
            return StepResult(verdict="undecided", reason=f"{patched.path} is not Python: it cannot say whether it was loaded")
        goal = ProbeGoal(self, ctx, patched, ctx.window(self.since, self.until))
        diagnosis = ctx.watch(goal)
        for finding in diagnosis.findings:
            ctx.find(finding.code, finding.text)
        fields = {**_fields(goal.outcome, goal.view), "tensors": fetch_tensors(ctx, goal.outcome.hits, self.fetch)}
        for row in fields["tensors"]:
            if row.get("note"):
                ctx.find("tensor_missing", f"`{row['name']}` of pid {row['pid']}: {row['note']}")
        return StepResult(verdict=diagnosis.verdict, reason=diagnosis.reason, diagnosis=diagnosis, fields=fields)


class ProbeGoal:
    """Looks until the records answer the question; keeps the last view and what it means."""

    every_s = 0.5

    def __init__(self, step: ExpectProbe, ctx: StepContext, patched: Patched, window: Window) -> None:
        self._step = step
        self._ctx = ctx
        self._patched = patched
        self._window = window
        self._look = ProbeLook(ctx, patched, window)
        self._began = ctx.clock.now()
        self.outcome = Outcome(outcome="unseen", reason="not looked at", left=("not looked at",))
        self.view: View | None = None

    def look(self) -> Sample:
        """Read what is new, and judge it."""
        facts, now = self._ctx.host.facts, self._ctx.clock.now()
        self.view = self._look.look(now)
        self.outcome = judge(self.view)
        return Sample(t=now, host=self._ctx.host.name, host_t=now + facts.clock_offset_s, boot_id=facts.boot_id)

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """At once when the expectation is met for good; else when the wait is over."""
        answer = self._answer()
        met = answer.verdict == "passed" and self._step.expect != "not_reached" and self._step.count.max is None
        spoiled = self._step.expect == "not_reached" and self.outcome.outcome == "fired"
        settled = self._window.until is not None and self._step.expect != "armed"  # hits are on disk when they happen
        return answer if met or spoiled or settled or final or now - self._began >= self._step.wait else None

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Hits so far."""
        return None, f"{len(self.outcome.hits)} hits, {len(self.outcome.imports)} processes loaded it"

    def _answer(self) -> Diagnosis:
        outcome = self.outcome
        verdict, note = self._verdict()
        findings = []
        if outcome.outcome == "fired" and self.view is not None and self.view.log == Seen(0):
            findings.append(Finding(code="not_in_log", text=f"`{self._patched.step}` fired, but the server's log has no line of it"))
        replayed = next((why for why in outcome.missing if why.startswith(REPLAYED)), "")
        if replayed and self.view is not None and any(one.kind == "graph" for one in self.view.channel.silences):
            findings.append(Finding(code="hits_missing", text=f"there may be more hits of `{self._patched.step}`: {replayed}"))
        evidence = (
            Evidence(signal="hits", value=len(outcome.hits), unit="hits", points_to=verdict),
            Evidence(signal="imports", value=sorted({armed.pid for armed in outcome.imports}), unit="pids", points_to=verdict),
            *(Evidence(signal=f"excluded: {item.explanation}", value=item.by, points_to=outcome.outcome) for item in outcome.excluded),
        )
        return Diagnosis(
            verdict=verdict,
            rule=f"probe_{outcome.outcome}",
            reason=f"{outcome.outcome}: {outcome.reason}{note}",
            confidence=None if verdict == "undecided" else "proven" if outcome.outcome in ("fired", "not_reached") else "strong",
            evidence=evidence,
            findings=tuple(findings),
            blind=outcome.left,
            next=_next(outcome),
        )

    def _verdict(self) -> tuple[str, str]:
        """(verdict, what is to be added to the reason)."""
        word, expect = self.outcome.outcome, self._step.expect
        if word == "not_armed":
            return "invalid_experiment", ""
        if expect == "armed" and any(left.startswith(IMPORT_FAILED) for left in self.outcome.left):
            return "undecided", ""
        if expect == "armed":
            return ("passed", "; it is loaded") if self.outcome.imports or word == "fired" else ("undecided", "")
        if word == "unseen":
            return "undecided", ""
        if expect == "not_reached":
            return ("passed" if word == "not_reached" else "failed"), ("" if word == "not_reached" else "; expected not_reached")
        count = self._step.count
        if word == "not_reached":
            return ("passed", "") if count.min == 0 else ("failed", "; expected fired")
        found, more = len(self.outcome.hits), "".join(f"; there may be more: {why}" for why in self.outcome.missing[:1])
        if count.max is not None and found > count.max:
            return "failed", f"; expected {count.text()} hits"
        if found < (count.min or 0) or (count.max is not None and more):
            return "undecided" if more else "failed", f"; expected {count.text()} hits{more}"
        missing = self._missing_ranks() if self._step.ranks == "all" else ""
        unseen = [one.reason for _, one in by_process(self.view) if one.outcome == "unseen"] if missing and self.view is not None else []
        return ("undecided" if unseen else "failed", "; ".join(["", missing, *unseen[:1]])) if missing else ("passed", "")

    def _missing_ranks(self) -> str:
        seen = {hit.rank for hit in self.outcome.hits}
        if self._look.launched is not None and self._look.launched.ranks is not None:
            missing = sorted(set(range(self._look.launched.ranks)) - seen)
            return f"no hit of rank {', '.join(map(str, missing))}" if missing else ""
        pids = sorted({armed.pid for armed in self.outcome.imports} - {hit.pid for hit in self.outcome.hits})
        return f"no hit of pid {', '.join(map(str, pids))}, which loaded it too (`ranks:` of the launch is not set)" if pids else ""


def _fields(outcome: Outcome, view: View | None) -> dict[str, Any]:
    return {
        "outcome": outcome.outcome,
        "hits": [hit.plain() for hit in outcome.hits],
        "imports": [
            {"pid": one.pid, "start": one.start, "rank": one.rank, "file": one.file, "sha": one.sha256, "time": one.time, "how": one.how}
            for one in outcome.imports
        ],
        "excluded": [to_builtins(item) for item in outcome.excluded],
        "left": list(outcome.left),
        "missing": list(outcome.missing),
        "ranks": [] if view is None else [_rank(armed, one) for armed, one in by_process(view)],
    }


def _rank(armed: Armed, outcome: Outcome) -> dict[str, Any]:
    """A process learns its rank after the import: its hits know it better."""
    rank = next((hit.rank for hit in outcome.hits if hit.rank is not None), armed.rank)
    told = {"outcome": outcome.outcome, "hits": len(outcome.hits), "reason": outcome.reason}
    return {"pid": armed.pid, "start": armed.start, "rank": rank, **told}


def _next(outcome: Outcome) -> tuple[str, ...]:
    if outcome.outcome == "not_armed":
        return ("look which file the server imports (playbook `which_copy`), and patch that one: `file:` takes its path",)
    if outcome.outcome == "unseen":
        return ("send the request again with a larger `hits:`, or without graphs, and read the same window",)
    return ()
