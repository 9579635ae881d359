"""expect_probe: did the probes of a patch fire in a window, and if not, what does the silence mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.hosts.base import Mark, RemoteError
from runbook.model.fields import PatchRef, StepRef
from runbook.model.sample import Blind, Sample, Seen
from runbook.model.units import Duration
from runbook.model.verdict import Diagnosis, Evidence, Finding
from runbook.probes.outcome import Outcome, View, judge
from runbook.probes.reading import Channel, Hit, head, read
from runbook.steps.base import Launched, Patched, Step, StepContext, StepResult, Window
from runbook.steps.grep import Count

MOST_READ = 32 << 20
"""Bytes of a side file that are read; each process writes at most 2,000 hits of 4 KiB for one probe."""


class ExpectProbe(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read what the probes of a patch wrote in a window, and say what their silence means.

    `fired`: hits as data. `not_reached`: the running server loaded the patched file, there was no hit, and every other
    explanation is excluded: evidence. `not_armed`: it did not load this file, so the experiment is invalid. `unseen`: silence
    that can be explained otherwise (bucket used up, graph replay, nothing readable): undecided.
    """

    TYPE: ClassVar[str] = "expect_probe"
    RESULTS: ClassVar[dict[str, str]] = {
        "outcome": "fired, not_reached, not_armed or unseen",
        "hits": "one mapping a hit: the shown values, probe, pid, process_start, rank, seq, time; sorted by time, rank, seq",
        "imports": "one mapping a process that loaded the patched file: pid, start, rank, file, sha, time, how",
        "excluded": "each other explanation of a silence, and what excludes it",
    }
    EXAMPLE: ClassVar[str] = "expect_probe: {probe: taps, since: chat, until: chat}"

    probe: Annotated[PatchRef, Meta(description="the patch step")]
    since: Annotated[StepRef, Meta(description="the window begins where that step began")] = "start"
    until: Annotated[StepRef | None, Meta(description="and ends where that step ended and 2 s more; left out: now")] = None
    expect: Annotated[Literal["fired", "not_reached", "armed"], Meta(description="armed: the server has loaded the patched file")] = "fired"
    count: Annotated[Count, Meta(description="bounds on the number of hits")] = Count(min=1)
    wait: Annotated[Duration, Meta(description="how long to wait for it")] = Duration(10)
    ranks: Annotated[Literal["any", "all"], Meta(description="all: every rank must have hit")] = "any"

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
        return StepResult(verdict=diagnosis.verdict, reason=diagnosis.reason, diagnosis=diagnosis, fields=_fields(goal.outcome))


class ProbeGoal:
    """Looks at side file, log, processes and imports; keeps what it read, and judges that."""

    every_s = 0.5

    def __init__(self, step: ExpectProbe, ctx: StepContext, patched: Patched, window: Window) -> None:
        self._step = step
        self._ctx = ctx
        self._patched = patched
        self._window = window
        self._launched: Launched | None = ctx.launched(patched.launch) if patched.launch else None
        self._data = b""
        self._asked_import = False
        self._imports_from: Union[Seen[str], Blind] = Blind("not asked")
        self._began = ctx.clock.now()
        self.outcome = Outcome(outcome="unseen", reason="not looked at", left=("not looked at",))
        self._log: Union[Seen[int], Blind] = Blind("not asked")

    def look(self) -> Sample:
        """Up to four round trips; the import lookup is asked once, and only when no load was seen."""
        ctx, facts = self._ctx, self._ctx.host.facts
        now = ctx.clock.now()
        side = self._read_side()
        self._log, lines = self._read_log()
        channel = _merged(
            read(self._data, self._patched.marker), read(lines, self._patched.marker) if isinstance(side, Blind) else Channel()
        )
        if not channel.armed and not self._asked_import:
            self._asked_import, self._imports_from = True, self._resolve()
        until = now if self._window.until is None else self._window.until
        launched, ended = self._life()
        view = View(
            channel=channel,
            path=self._patched.path,
            sha256=self._patched.record.sha256_after,
            written=self._patched.written,
            since=self._window.since + facts.clock_offset_s,
            until=until + facts.clock_offset_s,
            error_s=facts.clock_error_s,
            side=side,
            log=self._log,
            alive=self._alive(),
            launched=launched,
            ended=ended,
            imports_from=self._imports_from,
        )
        self.outcome = judge(view)
        return Sample(t=now, host=ctx.host.name, host_t=now + facts.clock_offset_s, boot_id=facts.boot_id)

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
        if outcome.outcome == "fired" and self._log == Seen(0):
            findings.append(Finding(code="not_in_log", text=f"`{self._patched.step}` fired, but the server's log has no line of it"))
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
        if expect == "armed":
            return ("passed", "; it is loaded") if self.outcome.imports or word == "fired" else ("undecided", "")
        if word == "unseen":
            return "undecided", ""
        if expect == "not_reached":
            return ("passed" if word == "not_reached" else "failed"), ("" if word == "not_reached" else "; expected not_reached")
        count = self._step.count
        if word == "not_reached":
            return ("passed", "") if count.min == 0 else ("failed", "; expected fired")
        if len(self.outcome.hits) < (count.min or 0) or (count.max is not None and len(self.outcome.hits) > count.max):
            return "failed", f"; expected {count.text()} hits"
        missing = self._missing_ranks() if self._step.ranks == "all" else ""
        return ("failed", f"; {missing}") if missing else ("passed", "")

    def _missing_ranks(self) -> str:
        seen = {hit.rank for hit in self.outcome.hits}
        if self._launched is not None and self._launched.ranks is not None:
            missing = sorted(set(range(self._launched.ranks)) - seen)
            return f"no hit of rank {', '.join(map(str, missing))}" if missing else ""
        pids = sorted({armed.pid for armed in self.outcome.imports} - {hit.pid for hit in self.outcome.hits})
        return f"no hit of pid {', '.join(map(str, pids))}, which loaded it too (`ranks:` of the launch is not set)" if pids else ""

    def _read_side(self) -> Union[Seen[int], Blind]:
        try:
            while len(self._data) < MOST_READ:
                piece = self._ctx.host.read(self._patched.side_file, len(self._data), 4 << 20)
                if piece.size < len(self._data):
                    return Blind(f"{piece.path} was cut from {len(self._data)} to {piece.size} bytes")
                self._data += piece.data
                if not piece.data or len(self._data) >= piece.size:
                    return Seen(len(self._data))
        except RemoteError as problem:
            return Blind(f"side file: {problem.summary}")
        return Blind(f"{self._patched.side_file} is larger than {MOST_READ >> 20} MiB")

    def _read_log(self) -> tuple[Union[Seen[int], Blind], bytes]:
        """Number of the hits' lines in the log's window, and all of the patch's lines in the log as far as they travel."""
        if self._launched is None:
            return Blind("no launch is named, so no log"), b""
        state = self._launched.state
        own = Mark(state.log_inode, state.log_offset) if state.log_inode else None
        begin = self._window.begin.get(state.log, own)
        try:
            report = self._ctx.host.scan(state.log, re.escape(head(self._patched.marker)), begin=own, most=1000)
            lines = "\n".join(match.line for match in report.matches).encode()
            inside = self._ctx.host.scan(state.log, re.escape(head(self._patched.marker)) + '.*"kind": "hit"', begin=begin, most=0)
        except RemoteError as problem:
            return Blind(f"log: {problem.summary}"), b""
        return (Seen(inside.count) if inside.complete else Blind(f"log: {inside.gap}")), lines

    def _alive(self) -> Union[Seen[frozenset[tuple[int, int]]], Blind]:
        """Live processes of this run: of the launch's session, or with the run's marker."""
        run = self._ctx.run.id
        sid = self._launched.state.sid if self._launched else None
        try:
            table = self._ctx.host.processes(run)
        except RemoteError as problem:
            return Blind(f"processes: {problem.summary}")
        return Seen(frozenset((row.pid, row.start) for row in table if row.state != "Z" and (row.run == run or row.sid == sid)))

    def _life(self) -> tuple[float | None, float | None]:
        """(started, ended) of the launch, host time; null when not known or still alive."""
        if self._launched is None:
            return None, None
        try:
            state = self._ctx.host.launch_state(self._ctx.run.id, self._launched.state.id)
        except RemoteError:
            return self._launched.state.started, None  # its keeper is gone: the process table still tells who is alive
        return state.started, state.ended

    def _resolve(self) -> Union[Seen[str], Blind]:
        """The file that the launched interpreter would import now."""
        if self._launched is None or not self._patched.module:
            return Blind("no launch or no module is named")
        state = self._launched.state
        try:
            found = self._ctx.host.find_module(
                self._patched.module, interpreter=state.interpreter, prelude=self._launched.prelude, cwd=state.cwd, env=self._launched.env
            )
        except RemoteError as problem:
            return Blind(f"module lookup: {problem.summary}")
        return Seen(found.path)


def _merged(side: Channel, log: Channel) -> Channel:
    """Both channels' records, each once; torn lines count only where the side file is torn."""
    seen: dict[tuple[int, int, int], Hit] = {(hit.pid, hit.start, hit.seq): hit for hit in (*log.hits, *side.hits)}
    hits = sorted(seen.values(), key=lambda hit: (hit.time, -1 if hit.rank is None else hit.rank, hit.seq))
    return Channel(armed=side.armed or log.armed, hits=tuple(hits), silences=side.silences or log.silences, torn=side.torn or log.torn)


def _fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "outcome": outcome.outcome,
        "hits": [hit.plain() for hit in outcome.hits],
        "imports": [
            {"pid": one.pid, "start": one.start, "rank": one.rank, "file": one.file, "sha": one.sha256, "time": one.time, "how": one.how}
            for one in outcome.imports
        ],
        "excluded": [msgspec.to_builtins(item) for item in outcome.excluded],
    }


def _next(outcome: Outcome) -> tuple[str, ...]:
    if outcome.outcome == "not_armed":
        return ("look which file the server imports: grep its log for the traceback of an import, or patch by `file:`",)
    if outcome.outcome == "unseen":
        return ("send the request again with a larger `hits:`, or without graphs, and read the same window",)
    return ()
