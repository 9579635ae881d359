"""launch: start a server under the run's keeper, in a session of its own, with its output in one log."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.diagnose.judge import judge
from runbook.hosts.base import HostError, LaunchSpec, LaunchState, RemoteError
from runbook.lang.expressions import Unknown
from runbook.model.fields import Port, ProfileName, ShellText
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample, Seen
from runbook.model.units import Duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence
from runbook.model.versions import unknown_versions
from runbook.steps.base import Launched, Step, StepContext, StepResult
from runbook.steps.kept import take_kept

PACKAGES = ("sglang", "vllm", "torch", "transformers")
"""Distributions whose version a reader of the transcript asks for first."""
MORTAL = "nothing that is started behind this `via:` outlives the connection, so no server is launched here: {why}; {instead}"
INSTEAD = (
    "launch it from the host where `srun` is called, with `srun …` before its command: its keeper holds that step; then `attach` to it "
    "here. Or start it from the job's own script, or reach the node by ssh"
)
VERSIONS = (
    "import importlib.metadata as m, json, sys\n"
    "found = {'python': sys.version.split()[0]}\n"
    f"for name in {PACKAGES!r}:\n"
    "    try: found[name] = m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "print(json.dumps(found))\n"
)


class Launch(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a server: own session, stdin from null, output appended to its log, a keeper as its parent.

    Passed once the process lives past exec and has not died within `settle`. A port that something answers already is
    wrong_server, before anything starts.
    """

    TYPE: ClassVar[str] = "launch"
    CHANGES: ClassVar[bool] = True
    SHORTHAND: ClassVar[str | None] = None
    TIMEOUT: ClassVar[str] = "2m"
    RESUME: ClassVar[str] = "recheck"
    RESULTS: ClassVar[dict[str, str]] = {
        "pid": "of the main process",
        "start": "its start time in clock ticks since boot",
        "sid": "its session",
        "log": "path of its log on the host",
        "port": "the port that it will listen on; unknown when neither given nor in the command",
        "argv": "what was executed",
        "env": "the variables that were added",
        "interpreter": "the executable that runs",
        "versions": "python, torch and engine versions of the command's interpreter",
        "metrics": "the engine's own numbers, last value at evaluation",
    }
    EXAMPLE: ClassVar[str] = (
        "id: server\nlaunch:\n  command: [python, -m, sglang.launch_server, --model-path, /models/m, --port, '30000']\n  profile: sglang"
    )

    command: Annotated[
        Union[ShellText, list[Union[str, int, float]]], Meta(description="a list is executed as it is; text goes through the shell")
    ]
    cwd: Annotated[str, Meta(description="working directory; the login directory when left out")] = ""
    env: Annotated[dict[str, Union[str, int, float, bool]], Meta(description="variables to add")] = {}
    prelude: Annotated[ShellText, Meta(description="shell text before the command, to activate an environment")] = ""
    python: Annotated[str, Meta(description="replaces a leading `python` of a command list")] = ""
    profile: Annotated[ProfileName, Meta(description="engine profile")] = "generic"
    log: Annotated[str, Meta(description="log path on the host, or `auto`: a file in the run's folder")] = "auto"
    port: Annotated[Port | None, Meta(description="read from the command when left out")] = None
    ranks: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="ranks to expect")] = None
    at_end: Annotated[Literal["stop", "keep"], Meta(description="what becomes of it when the run ends")] = "stop"
    dumps: Annotated[
        Literal["auto", "off", "full"],
        Meta(description="auto: no core file and PYTHONFAULTHANDLER=1, so that ABRT prints its threads; full: also stacks and collectives"),
    ] = "auto"
    settle: Annotated[Duration, Meta(description="how long it must live before the step passes")] = Duration(1)

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice."""
        return "starts a server"

    def argv(self) -> tuple[str, ...]:
        """The command list as text; empty for shell text."""
        if isinstance(self.command, str):
            return ()
        words = tuple(str(word) for word in self.command)
        return (self.python, *words[1:]) if self.python and words and words[0] == "python" else words

    def problems(self) -> list[tuple[str, str, str]]:
        """An empty command, and `python:` where it would do nothing."""
        found = []
        if not self.command:
            found.append(("command", "the command is empty", "write for example `[python, -m, sglang.launch_server]`"))
        if self.python and isinstance(self.command, str):
            found.append(("python", "`python` has no effect on shell text", "write the interpreter into the text"))
        return found

    def plan(self) -> list[str]:
        """One line with the command, as a shell would take it."""
        text = self.command if isinstance(self.command, str) else shlex.join(self.argv())
        return [f"start `{text}` in its own session, log {self.log}, {'stopped' if self.at_end == 'stop' else 'kept'} at the end"]

    def run(self, ctx: StepContext) -> StepResult:
        """Look at the port, start, watch it settle."""
        if ctx.host.ends_with_link:
            return StepResult(verdict="refused", reason=MORTAL.format(why=ctx.host.ends_with_link, instead=INSTEAD))
        if ctx.host.facts.logout:
            ctx.find("ends_at_logout", f"{ctx.host.name}: what is started here may not outlive the connection: {ctx.host.facts.logout}")
        profile = ctx.profile(self.profile)
        port = self.port or read_port(self.argv() or tuple(_words(self.command)), profile)
        launched = self._begun(ctx, profile, port)
        if launched is None and ctx.reuse is not None and ctx.reuse.launch is not None:
            kept = take_kept(ctx, ctx.reuse, self, self._env(ctx, profile))
            if kept is not None:
                ctx.watch_log(kept.state.log)
                fields = {**_fields(kept.state, kept.port, kept.env), "versions": self._versions(ctx, kept)}
                return StepResult(verdict="passed", reason=f"taken over from run {kept.run}: pid {kept.state.pid}", fields=fields)
        if launched is None:
            taken = self._port_owner(ctx, port) if port else None
            if taken:
                return StepResult(verdict="wrong_server", reason=taken.reason, diagnosis=taken, fields={"port": port})
            if ctx.check_mode:
                return StepResult(verdict="passed", reason=f"would {self.plan()[0]}")
            started = self._start(ctx, profile, port)
            if isinstance(started, StepResult):
                return started
            launched = started
        diagnosis = ctx.watch(Settling(ctx, launched, float(self.settle)))
        state = ctx.host.launch_state(launched.run or ctx.run.id, ctx.step)
        reason = f"pid {state.pid}, log {state.log}" if diagnosis.verdict == "passed" else diagnosis.reason
        versions = self._versions(ctx, launched)
        for name, found, wanted in unknown_versions(profile.known, versions if isinstance(versions, dict) else {}):
            text = f"{name} {found}: the marks of profile `{profile.profile}` were read in {wanted}, so it may print other lines"
            ctx.find("profile_version", text)
        fields = {**_fields(state, port, launched.env), "versions": versions}
        return StepResult(verdict=diagnosis.verdict, kind=diagnosis.kind, reason=reason, diagnosis=diagnosis, fields=fields)

    def _begun(self, ctx: StepContext, profile: Profile, port: int | None) -> Launched | None:
        """What this attempt had started before its controller died, as the keeper has it on record."""
        before = ctx.launched(ctx.step)
        if ctx.reentry is None or ctx.reentry.registered:
            return before if ctx.reentry is not None else None
        try:
            known = {state.id: state for state in ctx.host.keeper(ctx.run.id).launches}
        except RemoteError:
            return None  # the host has nothing of this run
        state = known.get(ctx.step)
        if state is None or (before is not None and (before.state.pid, before.state.start) == (state.pid, state.start)):
            return None  # it is not there, or of an attempt that has ended
        return self._kept(ctx, profile, port, state, self._env(ctx, profile))

    def _port_owner(self, ctx: StepContext, port: int) -> Diagnosis | None:
        owners = ctx.host.listeners(port)
        if not owners:
            return None
        row = owners[0]
        who = f"pid {row.pid} ({row.title})" if row.pid else "a process that is not visible to us"
        return Diagnosis(
            verdict="wrong_server",
            rule="port_taken_before_launch",
            reason=f"port {port} is already answered by {who}; nothing was started",
            confidence="proven",
            culprit=Culprit(host=ctx.host.name, pid=row.pid or None, title=row.title),
            evidence=(Evidence(signal="listener", value=f"{who} on {row.address or port}", points_to="wrong_server"),),
            next=(
                f"stop it with a step `kill: {{match: {{port: {port}}}}}`, or launch on another port"
                if row.pid
                else f"launch on another port, or see as root who it is: `ss -ltnp 'sport = :{port}'`",
            ),
        )

    def _start(self, ctx: StepContext, profile: Profile, port: int | None) -> Launched | StepResult:
        host, run = ctx.host, ctx.run
        env = self._env(ctx, profile)
        spec = LaunchSpec(
            run=run.id,
            id=ctx.step,
            argv=self.argv(),
            shell=self.command if isinstance(self.command, str) else "",
            prelude=self.prelude,
            cwd=self.cwd,
            env=env,
            log="" if self.log == "auto" else self.log,
            at_end=self.at_end,
            suspend_for_s=run.suspend_for_s,
            dumps=self.dumps,
            token=secrets.token_hex(8),
        )
        ctx.owe(f"keeper:{host.name}", "keeper")
        host.ensure_keeper(run.id, run.suspend_for_s)
        ctx.owe(f"launch:{ctx.step}:{host.name}", "launch", at_end=self.at_end)
        try:
            with ctx.action("launch", argv=list(spec.argv) or [spec.shell], cwd=self.cwd, env=env) as done:
                state = host.launch(spec)
                done(pid=state.pid, log=state.log)
        except RemoteError as problem:
            ctx.settle(f"launch:{ctx.step}:{host.name}", "gone")
            return StepResult(
                verdict="crashed",
                kind="config",
                reason=f"could not be started: {problem.summary}" + (f"; {problem.hint}" if problem.hint else ""),
            )
        if state.dump_env:
            ctx.find(
                "dumps_full", f"`{ctx.step}` is not launched as without runbook: `dumps: full` added {', '.join(sorted(state.dump_env))}"
            )
        return self._kept(ctx, profile, port, state, env)

    def _env(self, ctx: StepContext, profile: Profile) -> dict[str, str]:
        """The variables that are added to the host's own."""
        added = {key: _text(value) for key, value in self.env.items()}
        return {**profile.launch_env, **self._dump_env(), **_visible_gpus(ctx.host.gpu_indices), **added}

    def _kept(self, ctx: StepContext, profile: Profile, port: int | None, state: LaunchState, env: dict[str, str]) -> Launched:
        """It exists: later steps may refer to it."""
        launched = Launched(
            step=ctx.step,
            host=ctx.host.name,
            state=state,
            profile=profile,
            port=port,
            env={**env, **state.dump_env},
            prelude=self.prelude,
            ranks=self.ranks,
        )
        ctx.keep(launched)
        ctx.watch_log(state.log)
        return launched

    def _dump_env(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1", **({"PYTHONFAULTHANDLER": "1"} if self.dumps != "off" else {})}

    def _versions(self, ctx: StepContext, launched: Launched) -> Any:
        program = launched.state.argv[0] if launched.state.argv else ""
        if not program.rsplit("/", 1)[-1].startswith("python"):
            return Unknown(f"`{program}` is not a Python interpreter")
        try:
            answer = ctx.host.run(
                [program, "-c", VERSIONS], env=launched.env, cwd=self.cwd, timeout_s=min(20.0, max(1.0, ctx.remaining_s()))
            )
            return msgspec.json.decode(answer.stdout)
        except HostError as problem:
            return Unknown(f"the interpreter was not asked: {problem.summary}")
        except msgspec.DecodeError:
            return Unknown(f"`{program}` gave no versions")


class Settling:
    """Waits until a new process has lived long enough, or has died."""

    every_s = 0.25

    def __init__(self, ctx: StepContext, launched: Launched, settle_s: float) -> None:
        self._ctx = ctx
        self._launched = launched
        self._settle_s = settle_s
        self._since = ctx.clock.now()
        self._log = {"path": launched.state.log, "inode": launched.state.log_inode, "offset": launched.state.log_offset}

    def look(self) -> Sample:
        """The process and what its log says so far."""
        state = self._launched.state
        sample = self._ctx.host.sample(
            {"run": self._launched.run or self._ctx.run.id, "server": state.id, "pid": state.pid, "start": state.start, "log": self._log}
        )
        if isinstance(sample.log, Seen):
            self._log |= {"inode": sample.log.value.inode, "offset": sample.log.value.end}
        return sample

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """Dead is crashed, with its first cause; alive for long enough is passed."""
        over = final or now - self._since >= self._settle_s
        return judge(samples, self._launched.profile, Question(about="settle", since=self._since, box_s=self._settle_s, final=over), now)

    def moved(self, samples: Sequence[Sample]) -> tuple[str | None, str]:
        """Nothing to tell: it takes a second."""
        return None, "settling"


def read_port(words: Sequence[str], profile: Profile) -> int | None:
    """The port in a command line, by the profile's flags; else the profile's default."""
    for index, word in enumerate(words):
        for flag in profile.port_flags:
            text = (
                word[len(flag) + 1 :]
                if word.startswith(flag + "=")
                else words[index + 1]
                if word == flag and index + 1 < len(words)
                else ""
            )
            if text.isdigit():
                return int(text)
    return profile.default_port


def _words(command: object) -> list[str]:
    try:
        return shlex.split(str(command))
    except ValueError:
        return str(command).split()  # an open quote: the shell will say so better than we can


def _visible_gpus(indices: list[int] | None) -> dict[str, str]:
    """The indices are those of nvidia-smi, by bus; CUDA itself counts the fastest first."""
    return {} if indices is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, indices)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(state: LaunchState, port: int | None, env: dict[str, str]) -> dict[str, Any]:
    return {
        "pid": state.pid,
        "start": state.start,
        "sid": state.sid,
        "log": state.log,
        "port": port if port is not None else Unknown("no port was given and none is in the command"),
        "argv": list(state.argv),
        "env": env,
        "interpreter": state.interpreter,
    }
