"""grep: search a window of a log; absence counts only where it could have been seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.diagnose.judge import judged
from runbook.hosts.base import Mark, RemoteError, ScanMatch, ScanReport
from runbook.model.fields import LaunchRef, Regex, StepRef
from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.units import Duration
from runbook.model.verdict import Diagnosis, Evidence
from runbook.steps.base import Launched, Step, StepContext, StepResult, Window
from runbook.steps.patience import OnSuspect, StallAfter, bad_duration, seconds_or_auto
from runbook.steps.watching import ServerGoal, Watched, begin_mark

START = "start"
SERVER_S = 2.0
ENDS_A_WAIT = frozenset({"hung", "crashed"})


class Count(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many there may be. Null: no bound."""

    min: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="at least")] = None
    max: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="at most")] = None

    def text(self) -> str:
        """For a sentence: "at least 1", "0 to 3"."""
        if self.min is not None and self.max is not None:
            return f"{self.min}" if self.min == self.max else f"{self.min} to {self.max}"
        return f"at most {self.max}" if self.max is not None else f"at least {self.min or 0}"


class Grep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Search a window of a log, split on line feed and carriage return; follows a rotation by inode.

    `absent` passes only when the window could be read whole, its writer was alive or ended inside it, and `control` (if given)
    was found in it; else the step is undecided and says why. While it waits for a line of a server's `log`, the server is watched:
    one that has crashed or hangs for certain writes no more lines.
    """

    TYPE: ClassVar[str] = "grep"
    RESULTS: ClassVar[dict[str, str]] = {
        "matches": "one mapping a line: file, line, offset, before, after, and the named groups of the pattern",
        "count": "lines that match, also beyond the ones listed",
        "scanned": "one mapping a file: path, bytes, from, to, inode, writers, complete, gap, control",
    }
    EXAMPLE: ClassVar[str] = "grep: {log: server, pattern: 'accept len: (?P<accept>[0-9.]+)', since: chat}"

    log: Annotated[LaunchRef | None, Meta(description="the launch whose log to search")] = None
    file: Annotated[Union[str, list[str], None], Meta(description="path on the host, or several, instead of `log`")] = None
    pattern: Annotated[Regex, Meta(description="searched in each line; named groups become fields")]
    since: Annotated[StepRef, Meta(description="where that step began; `start`: where the writer began")] = START
    until: Annotated[StepRef | None, Meta(description="where that step ended and 2 s more; left out: now")] = None
    wait: Annotated[Duration, Meta(description="how long to wait for it")] = Duration(0)
    expect: Annotated[Literal["present", "absent"], Meta(description="absent: evidence only when it could have been seen")] = "present"
    count: Annotated[Count | None, Meta(description="bounds on the number of lines")] = None
    control: Annotated[Regex, Meta(description="something that must be in the window, to show that the log is the right one")] = ""
    context: Annotated[int, Meta(description="lines before and after each match", ge=0, le=20)] = 2
    stall_after: StallAfter = "auto"
    on_suspect: OnSuspect = "collect"

    def problems(self) -> list[tuple[str, str, str]]:
        """One source, and bounds that can hold."""
        found = []
        if (self.log is None) == (self.file is None):
            found.append(("", "`grep` needs exactly one of `log`, `file`", "write for example `log: server`"))
        if self.count and self.expect == "absent":
            found.append(("count", "`count` has no meaning with `expect: absent`", "leave one of them out"))
        if self.count and None not in (self.count.min, self.count.max) and self.count.min > self.count.max:  # type: ignore[operator]
            found.append(("count", "`min` is larger than `max`", "exchange them"))
        return found + bad_duration(self, "stall_after")

    def plan(self) -> list[str]:
        """The window and the pattern."""
        where = f"the log of `{self.log}`" if self.log else ", ".join(self._files())
        window = f"since {self.since}" + (f" until {self.until}" if self.until else "")
        return [f"search {where} for `{self.pattern}`, {window}, expect {self.expect}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Search until it is decided or `wait` is over."""
        launched = ctx.launched(self.log) if self.log else None
        if self.log and launched is None:
            state = "check mode" if ctx.check_mode else f"`{self.log}` has launched nothing"
            return StepResult(verdict="passed" if ctx.check_mode else "undecided", reason=f"no log to search: {state}")
        if launched is not None and not launched.state.log:
            return StepResult(verdict="undecided", reason=f"the log of `{self.log}` is not known: {launched.log_note}")
        for path in self._files():
            ctx.watch_log(path)
        window = ctx.window(self.since, self.until)
        waits = launched is not None and self.wait > 0 and self.expect == "present" and self.until is None
        search = Awaiting(self, ctx, launched, window) if waits and launched is not None else Search(self, ctx, launched, window)
        try:
            diagnosis = ctx.watch(search)
        finally:
            search.close()
        fields = search.fields()
        return StepResult(verdict=diagnosis.verdict, kind=diagnosis.kind, reason=diagnosis.reason, diagnosis=diagnosis, fields=fields)

    def wanted(self) -> Count:
        """The bounds that decide `present`."""
        return self.count if self.count is not None else Count(min=1)

    def _files(self) -> list[str]:
        return [] if self.file is None else [self.file] if isinstance(self.file, str) else list(self.file)


class Search:
    """A goal: scans the window and judges what it saw. The last reports are kept for the step's result."""

    every_s = 0.5

    def __init__(self, step: Grep, ctx: StepContext, launched: Launched | None, window: Window) -> None:
        self.step = step
        self._ctx = ctx
        self._launched = launched
        self._window = window
        self._paths = [launched.state.log] if launched else step._files()
        self._since = ctx.clock.now()
        self.reports: dict[str, ScanReport] = {}
        self.blind: list[str] = []

    def look(self) -> Sample:
        """One scan a file; a log that is not there yet is not an answer."""
        blind = []
        for path in self._paths:
            begin, end, missing = self._bounds(path)
            blind += missing
            try:
                self.reports[path] = self._ctx.host.scan(
                    path, self.step.pattern, begin=begin, end=end, control=self.step.control, context=self.step.context
                )
            except RemoteError as problem:
                blind.append(f"{path}: {problem.summary}")
        self.blind = blind + self._reading_gaps() + self._silent_writers()
        now = self._ctx.clock.now()
        facts = self._ctx.host.facts
        return Sample(t=now, host=self._ctx.host.name, host_t=now + facts.clock_offset_s, boot_id=facts.boot_id)

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """Present ends at once when it is found, absent when it is not; otherwise when the wait is over."""
        over = final or now - self._since >= self.step.wait
        answer = self._absent() if self.step.expect == "absent" else self._present()
        return answer if over or answer.rule in ("grep_found", "grep_too_many", "grep_unexpected") else None

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """How many lines match so far."""
        return None, _lines(self.count)

    def close(self) -> None:
        """Nothing is under way between two looks."""

    @property
    def count(self) -> int:
        """Lines that match, in all files."""
        return sum(report.count for report in self.reports.values())

    def fields(self) -> dict[str, Any]:
        """What `steps.<id>` gives."""
        matches = [_match(path, match) for path, report in self.reports.items() for match in report.matches]
        return {"matches": matches, "count": self.count, "scanned": [_scanned(path, report) for path, report in self.reports.items()]}

    def _bounds(self, path: str) -> tuple[Mark | None, Mark | None, list[str]]:
        """(begin, end, what is not known about them). No end mark: to now, which is more than was asked and never less."""
        end = self._window.end.get(path) if self._window.end else None
        state = self._launched.state if self._launched else None
        own = Mark(state.log_inode, state.log_offset) if state and state.log_inode else None
        if self.step.since == START:
            return own, end, []
        begin = self._window.begin.get(path)
        facts = self._ctx.host.facts
        if state is not None and state.started - facts.clock_offset_s >= self._window.since - facts.clock_error_s:
            begin = own  # the writer began inside the window: the first note of its log came later
        return begin, end, [] if begin else [f"{path}: where it stood when `{self.step.since}` began is not known"]

    def _reading_gaps(self) -> list[str]:
        gaps = [f"{path}: {report.gap or 'a part could not be read'}" for path, report in self.reports.items() if not report.complete]
        lost = [path for path, report in self.reports.items() if self.step.control and not report.control_found]
        return gaps + [f"{path}: the control `{self.step.control}` is not in the window either" for path in lost]

    def _silent_writers(self) -> list[str]:
        """Logs that nobody was writing to: their silence says nothing."""
        if self.step.expect != "absent":
            return []
        if self._launched is not None and self._launched.run != "":
            ctx = self._ctx
            state = ctx.host.launch_state(self._launched.run or ctx.run.id, self._launched.state.id)
            ended = None if state.ended is None else state.ended - ctx.host.facts.clock_offset_s
            if ended is not None and ended < self._window.since:
                return [f"{state.log}: its writer (pid {state.pid}) had ended before the window began"]
            return []
        return [f"{path}: no process has it open for writing" for path, report in self.reports.items() if not report.writers]

    def _present(self) -> Diagnosis:
        count, wanted = self.count, self.step.wanted()
        if wanted.max is not None and count > wanted.max:
            return self._answer("failed", "grep_too_many", f"{_lines(count)} `{self.step.pattern}`, expected {wanted.text()}")
        if count < (wanted.min or 0):
            if self.blind:
                return self._answer("undecided", "grep_blind", f"{_lines(count)}, expected {wanted.text()}; {self.blind[0]}")
            return self._answer("failed", "grep_too_few", f"{_lines(count)} `{self.step.pattern}`, expected {wanted.text()}{self._where()}")
        rule = "grep_found" if wanted.max is None else "grep_counted"
        return self._answer("passed", rule, f"{_lines(count)}{self._first()}")

    def _absent(self) -> Diagnosis:
        if self.count:
            return self._answer("failed", "grep_unexpected", f"{_lines(self.count)} `{self.step.pattern}`{self._first()}")
        if self.blind:
            return self._answer("undecided", "grep_blind", f"no line matches, but that proves nothing: {self.blind[0]}")
        return self._answer("passed", "grep_absent", f"no line matches `{self.step.pattern}`{self._where()}")

    def _answer(self, verdict: str, rule: str, reason: str) -> Diagnosis:
        proven = "proven" if verdict != "undecided" else None
        evidence = (
            Evidence(signal="lines_matched", value=self.count, unit="lines", points_to=verdict),
            *(Evidence(signal="bytes_searched", value=report.bytes, unit="bytes") for report in self.reports.values()),
        )
        return Diagnosis(verdict=verdict, rule=rule, reason=reason, confidence=proven, evidence=evidence, blind=tuple(self.blind))

    def _first(self) -> str:
        for report in self.reports.values():
            if report.matches:
                return f", the first: `{report.matches[0].line[:200]}`"
        return ""

    def _where(self) -> str:
        parts = [f"{path} bytes {report.begin} to {report.end}" for path, report in self.reports.items()]
        return f" in {', '.join(parts)}" if parts else ""


class Awaiting(Search, ServerGoal):
    """The same for a line that is still to be written: its writer is looked at too, since a dead or hung one writes none."""

    def __init__(self, step: Grep, ctx: StepContext, launched: Launched, window: Window) -> None:
        super().__init__(step, ctx, launched, window)
        self.profile = launched.profile
        self.watched: Watched = Watched(ctx, launched, begin_mark(ctx, launched))
        self._box_s = min(ctx.remaining_s(), float(step.wait))
        self._due = ctx.clock.monotonic() + SERVER_S

    def look(self) -> Sample:
        """One scan, and every two seconds the server."""
        sample = Search.look(self)
        now = self._ctx.clock.monotonic()
        if now < self._due:
            return sample
        self._due = now + SERVER_S
        return self.watched.look()

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """The line; else what is certain of the server. Of a dead one the rest of the log is read first."""
        answer = Search.judge(self, samples, now, final=final)
        if answer is not None and answer.verdict == "passed":
            return answer
        server = judged(self.view(samples, now, final=final))
        if server is None or server.verdict not in ENDS_A_WAIT:
            return answer
        reason = f"{_lines(self.count)} `{self.step.pattern}`, and no more will come: {server.reason}"
        return msgspec.structs.replace(server, reason=reason)

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Lines so far, and what moves in the server."""
        phase, text = ServerGoal.moved(self, samples)
        return phase, f"{_lines(self.count)}; {text}"

    def question(self, final: bool) -> Question:
        """In which state is the server?"""
        return Question(
            about="state",
            since=self._since,
            box_s=self._box_s,
            final=final,
            stall_after_s=seconds_or_auto(self.step.stall_after),
            on_suspect=self.step.on_suspect,
            limited_by=self._ctx.limited_by(),
        )

    def close(self) -> None:
        """End what is still under way."""
        ServerGoal.close(self)


def _lines(count: int) -> str:
    return "1 line matches" if count == 1 else f"{count} lines match"


def _match(path: str, match: ScanMatch) -> dict[str, Any]:
    groups = {name: value for name, value in match.groups.items()}
    place = {"file": path, "line": match.line, "offset": match.offset}
    return {**groups, **place, "before": list(match.before), "after": list(match.after)}


def _scanned(path: str, report: ScanReport) -> dict[str, Any]:
    place = {"path": path, "bytes": report.bytes, "from": report.begin, "to": report.end, "inode": report.inode}
    return {**place, "writers": list(report.writers), "complete": report.complete, "gap": report.gap, "control": report.control_found}
