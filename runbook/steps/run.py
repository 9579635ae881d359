"""run: the escape hatch: a script or a command, in a process group of its own, really ended when its time is over."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.hosts.base import Completed, HostError, LinkLost, ProcessId, RemoteError
from runbook.model.fields import ShellText
from runbook.model.playbook import DEFAULT_CAP
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis
from runbook.steps.base import Step, StepContext, StepResult
from runbook.steps.exchange import Exchange
from runbook.steps.kill import launch_processes
from runbook.steps.patience import OnSuspect, StallAfter, bad_duration, seconds_or_auto
from runbook.steps.printed import Printed
from runbook.steps.taking_over import Unknowable, take_over

LAST_LINES = 5
UNWATCHED_S = 5.0
"""What has ended by then was never watched."""
ENDED_S = 30.0
LADDER = ("TERM 5s", "KILL 5s")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RunExpect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts as an answer that was expected."""

    exit: Annotated[tuple[int, ...], Meta(description="exit codes that pass")] = (0,)


class Run(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a shell script or a command on the host.

    The script travels as data, never as an argument, and runs with `set -eu` and, where there is bash, `pipefail`. When the time
    box ends, the ladder runs on its process group and the step says whether it is gone. It outlives the loss of the link: how it
    ended is asked over the next one. A background child that keeps the output open is a finding, not a wait. What runs for longer
    than 5 s is watched: a hang that is proven ends it early, with `stall_after` also one that is not more than strong.
    """

    TYPE: ClassVar[str] = "run"
    SHORTHAND: ClassVar[str | None] = "shell"
    TIMEOUT: ClassVar[str] = "10m"
    HOLDS: ClassVar[bool] = True
    RESUME: ClassVar[str] = "unknown"
    RESULTS: ClassVar[dict[str, str]] = {
        "exit": "exit code; null when a signal ended it",
        "signal": "the signal's name, else null",
        "stdout": "text, head and tail when long",
        "stderr": "text, head and tail when long",
        "out": "stdout as `parse` says: text, lines or json",
        "left_running": "pids of its group that outlived the ladder",
    }
    EXAMPLE: ClassVar[str] = "run: nvidia-smi --query-gpu=memory.used --format=csv,noheader"

    shell: Annotated[ShellText | None, Meta(description="a script; each expression in it becomes one quoted word")] = None
    argv: Annotated[list[Union[str, int, float]] | None, Meta(description="a command, without a shell")] = None
    cwd: Annotated[str, Meta(description="working directory")] = ""
    env: Annotated[dict[str, Union[str, int, float, bool]], Meta(description="variables to add")] = {}
    stdin: Annotated[str, Meta(description="text for its stdin (argv only)")] = ""
    sudo: Annotated[bool, Meta(description="run through `sudo -n`: never asks for a password")] = False
    expect: Annotated[RunExpect, Meta(description="what passes")] = RunExpect()
    parse: Annotated[Literal["text", "lines", "json"], Meta(description="how `out` reads stdout")] = "text"
    live: Annotated[bool, Meta(description="show its output while it runs")] = False
    stall_after: StallAfter = "auto"
    on_suspect: OnSuspect = "collect"

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice."""
        return "runs as root" if body.get("sudo") else ""

    def problems(self) -> list[tuple[str, str, str]]:
        """Exactly one of shell and argv; stdin only where there is one."""
        found = []
        if (self.shell is None) == (self.argv is None):
            found.append(("", "`run` needs exactly one of `shell` and `argv`", "write `run: SCRIPT` or `run: {argv: [PROGRAM, ARG]}`"))
        if self.argv is not None and not self.argv:
            found.append(("argv", "`argv` is empty", "write the program and its arguments"))
        if self.stdin and self.shell is not None:
            found.append(("stdin", "`stdin` goes with `argv`: a script arrives over stdin itself", "use a here-document in the script"))
        return found + bad_duration(self, "stall_after")

    def plan(self) -> list[str]:
        """One line with the command."""
        text = " ".join(map(str, self.argv)) if self.argv is not None else (self.shell or "").strip()
        return [f"run{' as root' if self.sudo else ''}: {text}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Run it within the box."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}")
        started = Started()
        try:
            done, seen = self._watched(ctx, started)
        except Unknowable as problem:
            return StepResult(verdict="undecided", reason=f"{problem}{started.end_the_rest(ctx)}")
        except RemoteError as problem:
            return StepResult(verdict="failed", reason=problem.summary + (f"; {problem.hint}" if problem.hint else ""))
        if done.stdout_held:
            ctx.find("stdout_held", f"step `{ctx.step}`: a background child keeps its output open; it was not waited for")
        result = self._result(ctx, done)
        return _diagnosed(result, done, seen, started) if seen is not None and seen.rule != "run_ended" else result

    def _watched(self, ctx: StepContext, started: Started) -> tuple[Completed, Diagnosis | None]:
        """How it ended, and what watching it brought; None when it was too short for that."""
        printed, began, _ = Printed(), ctx.clock.now(), ctx.host  # a link that was lost before is waited for here
        call = Exchange(ctx.cancel, lambda token: self._execute(ctx, printed, started))
        try:
            if call.wait(UNWATCHED_S):
                return call.result(), None
            from runbook.steps.running import Running  # here: what judges costs more to import than most commands take

            goal = Running(ctx, started.process, call, printed, seconds_or_auto(self.stall_after), self.on_suspect, began)
            try:
                seen = ctx.watch(goal)
            finally:
                goal.close()
            if seen.rule != "run_ended" and ctx.remaining_s() > 0:
                started.end(ctx)
            call.wait(ENDED_S)
            return call.result(), seen
        finally:
            call.close()

    def _execute(self, ctx: StepContext, printed: Printed, started: Started) -> Completed:
        env = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in self.env.items()}

        def show(stream: str, data: bytes) -> None:
            printed.take(data)
            if self.live:
                ctx.progress(data.decode("utf-8", "replace").strip()[-200:])

        argv, shell = [str(word) for word in self.argv or ()], self.shell or ""
        stdin = self.stdin.encode()
        if self.sudo:
            argv, shell, stdin = _through_sudo(argv, shell, env, stdin)
        done = self._of_before(ctx, started, show) if ctx.reentry is not None else None
        while done is None:
            host = ctx.host
            try:
                return host.run(
                    argv,
                    shell=shell,
                    env=env,
                    cwd=self.cwd,
                    stdin=stdin,
                    timeout_s=max(0.1, ctx.remaining_s()),
                    keep_bytes=DEFAULT_CAP,
                    on_output=show,
                    marker=ctx.run.id,
                    hold=ctx.once,
                    on_start=started.note,
                )
            except LinkLost as lost:
                done = take_over(ctx, lost, host.facts, show, host.name)
        return done

    @staticmethod
    def _of_before(ctx: StepContext, started: Started, show: Callable[[str, bytes], None]) -> Completed | None:
        """How the command ended that an earlier controller began; None to begin it anew. What is left of it is ended first."""
        try:
            return take_over(ctx, None, None, show, ctx.host.name)
        except Unknowable as problem:
            started.process = started.process or problem.process
            if ctx.reentry is None or not ctx.reentry.redo:
                raise
            started.end_the_rest(ctx)
            started.process, started.ended = None, False
            return None

    def _result(self, ctx: StepContext, done: Completed) -> StepResult:
        out, err = _joined(done.stdout, done.stdout_dropped), _joined(done.stderr, done.stderr_dropped)
        stdout, stderr = out.decode("utf-8", "backslashreplace"), err.decode("utf-8", "backslashreplace")
        for name, data in (("stdout", out), ("stderr", err)):
            if len(data) > 4096:
                ctx.evidence(f"{name}.txt", data, f"{name} of `{ctx.step}`")
        fields: dict[str, Any] = {
            "exit": done.exit,
            "signal": done.signal,
            "stdout": stdout,
            "stderr": stderr,
            "left_running": list(done.left_running),
        }
        if done.timed_out:
            fate = f"still running: {', '.join(map(str, done.left_running))}" if done.left_running else "its process group is gone"
            return StepResult(verdict="failed", reason=f"not done after {format_duration(done.seconds)}; {fate}", fields=fields)
        if done.exit not in self.expect.exit:
            ending = f"signal {done.signal}" if done.signal else f"exit {done.exit}"
            return StepResult(verdict="failed", reason=f"{ending}: {_last(stderr or stdout)}", fields=fields)
        return self._parsed(fields, stdout)

    def _parsed(self, fields: dict[str, Any], stdout: str) -> StepResult:
        try:
            out = json.loads(stdout) if self.parse == "json" else stdout.splitlines() if self.parse == "lines" else stdout
        except ValueError as problem:
            return StepResult(verdict="failed", reason=f"stdout is not JSON: {problem}; it begins {stdout[:80]!r}", fields=fields)
        return StepResult(verdict="passed", reason=_last(stdout, 1)[:120], fields={**fields, "out": out})


class Started:
    """The process that a command became, as soon as it is known."""

    def __init__(self) -> None:
        self.process: ProcessId | None = None
        self.ended = False
        """Whether we ended it before its time."""

    def note(self, process: ProcessId) -> None:
        """It has begun."""
        self.process = process

    def end(self, ctx: StepContext) -> None:
        """End its session now, as the time box would."""
        self.ended = True
        if self.process is not None:
            members = launch_processes(ctx.host.processes(ctx.run.id), self.process.pid, self.process.start, self.process.pid)
            ctx.host.kill([member.id for member in members], LADDER)

    def end_the_rest(self, ctx: StepContext) -> str:
        """End what is still there of a command whose end nobody can see; answers what became of it, as the end of a sentence."""
        if self.process is None:
            return "; which process it became is not known either"
        try:
            self.end(ctx)
        except HostError as problem:
            return f"; pid {self.process.pid} may still run ({problem.summary})"
        return f"; pid {self.process.pid} and what it started were ended"


def _diagnosed(result: StepResult, done: Completed, seen: Diagnosis, started: Started) -> StepResult:
    """The result of a command that did not end by itself: the hang when one is certain, else what was seen of it."""
    fate = f"still running: {', '.join(map(str, done.left_running))}" if done.left_running else "its process group is gone"
    if seen.verdict == "hung":
        reason = f"{seen.reason}; it was ended, and {fate}"
        return StepResult(verdict="hung", kind=seen.kind, reason=reason, diagnosis=seen, fields=result.fields)
    if not done.timed_out and not started.ended:
        return result
    verdict = "undecided" if started.ended else result.verdict
    return StepResult(verdict=verdict, reason=f"{result.reason}; {seen.reason}", diagnosis=seen, fields=result.fields)


def _through_sudo(argv: list[str], shell: str, env: dict[str, str], stdin: bytes) -> tuple[list[str], str, bytes]:
    """sudo resets the environment, and what stands in its argv everybody can read: so variables go over stdin, before all else there.

    A script follows them there, to bash or sh.
    """
    odd = next((key for key in env if not _VARIABLE.fullmatch(key)), None)
    if odd is not None:
        raise RemoteError("bad_request", f"`{odd}` is not the name of a variable", "use letters, digits and `_`")
    reader = "if command -v bash >/dev/null; then exec bash -eu -o pipefail -s; else exec sh -eu -s; fi"
    command, body = (argv, stdin) if argv else (["sh", "-c", reader], shell.encode())
    if not env:
        return ["sudo", "-n", *command], "", body
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in env.items()).encode()
    load = 'exports=$(dd bs=1 count="$1" 2>/dev/null); shift; eval "$exports"; unset exports; exec "$@"'  # dd: reads not a byte too many
    return ["sudo", "-n", "sh", "-c", load, "sh", str(len(exports)), *command], "", exports + body


def _joined(data: bytes, dropped: int) -> bytes:
    """Head and tail of a long output in whole lines, with what is between them said: half a line could be half a secret."""
    if not dropped:
        return data
    head, _, cut = data[:DEFAULT_CAP].rpartition(b"\n")
    rest, _, tail = data[DEFAULT_CAP:].partition(b"\n")
    return b"%s\n[%d bytes left out here]\n%s" % (head, dropped + len(cut) + len(rest), tail)


def _last(text: str, count: int = LAST_LINES) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])[-400:] if lines else "no output"
