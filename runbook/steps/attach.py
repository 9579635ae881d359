"""attach: a server that is up already gets the results of a launch, so that a long load is paid once. It is never stopped by us."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from runbook.hosts.base import Described, Host, LaunchState, RemoteError
from runbook.lang.expressions import Unknown
from runbook.model.fields import Pid, Port, ProfileName, Regex
from runbook.model.profile import Profile
from runbook.model.units import format_duration
from runbook.steps.base import Launched, Step, StepContext, StepResult
from runbook.steps.caches import VARIABLES
from runbook.steps.launch import read_port
from runbook.steps.servers import Server, Survey, log_of

AUTO = "auto"
WHERE = {"port": "port", "pid": "pid", "match": "match", "of_run": "run"}
"""The fields that say which server, and their keys in YAML."""


class Attach(Step, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"of_run": "run"}):
    """Take a server that is up already as if this run had launched it.

    Later steps refer to it by this step's id. Its log is found from its open files, also behind a pipe to `tee`. It is not ours: at
    the end of the run it stays as it is, and a wait on it never suspends the run. How it ends is known only where a keeper of
    runbook is its parent.
    """

    TYPE: ClassVar[str] = "attach"
    RESULTS: ClassVar[dict[str, str]] = {
        "pid": "of the main process",
        "start": "its start time in clock ticks since boot",
        "sid": "its session",
        "log": "path of its log on the host; unknown when its output goes nowhere that can be read",
        "port": "the port that it listens on, or that its command names",
        "argv": "what was executed",
        "interpreter": "the executable that runs",
        "profile": "the engine profile that it is looked at with",
        "up_for": "seconds since its start",
        "metrics": "the engine's own numbers, last value at evaluation",
    }
    EXAMPLE: ClassVar[str] = "id: server\nattach: {port: 30000, profile: sglang}"

    port: Annotated[
        Port | None,
        Meta(
            description="the server that listens on this TCP port, or will by its command; beside another way to find it: where it answers"
        ),
    ] = None
    pid: Annotated[Pid | None, Meta(description="the server's main process")] = None
    match: Annotated[Regex | None, Meta(description="searched in argv and title; exactly one server must match")] = None
    of_run: Annotated[str | None, Meta(description="the server that this run of runbook launched and kept")] = None
    log: Annotated[str, Meta(description="path of its log on the host, or `auto`: from its open files")] = AUTO
    profile: Annotated[ProfileName | None, Meta(description="engine profile; guessed from its command when left out")] = None

    def problems(self) -> list[tuple[str, str, str]]:
        """One way to say which server, and perhaps its port."""
        ways = [name for name in WHERE if getattr(self, name) is not None]
        if not ways or len([name for name in ways if name != "port"]) > 1:
            return [("", "`attach` needs exactly one of `port`, `pid`, `match`, `run`", "write for example `port: 8000`")]
        return []

    def plan(self) -> list[str]:
        """How it is found."""
        return [f"find the server by {self._how()}; change nothing"]

    def _how(self) -> str:
        ways = [f"{key} {getattr(self, name)}" for name, key in WHERE.items() if getattr(self, name) is not None]
        return ways[-1]

    def run(self, ctx: StepContext) -> StepResult:
        """Find it, and remember it."""
        survey = Survey(ctx.host, ctx.known_profiles())
        try:
            found = self._found(ctx.host, survey)
            if len(found) != 1:
                return StepResult(verdict="failed", reason=self._unclear(found, survey))
            server = found[0]
            launched = self._attached(ctx, server)
        except RemoteError as problem:
            return StepResult(verdict="failed", reason=f"{problem.summary}; {problem.hint}" if problem.hint else problem.summary)
        ctx.keep(launched)
        if launched.state.log:
            ctx.watch_log(launched.state.log)
        log = launched.state.log or f"no log: {launched.log_note}"
        reason = f"pid {server.pid} `{server.title}`, up {format_duration(server.age_s)}, profile {launched.profile.profile}, {log}"
        return StepResult(verdict="passed", reason=reason, fields=_fields(launched, server))

    def _found(self, host: Host, survey: Survey) -> list[Server]:
        if self.pid is not None:
            one = survey.of_pid(self.pid)
            return [one] if one is not None else []
        if self.match is not None:
            return survey.matching(self.match)
        if self.of_run is None:
            return survey.on_port(self.port or 0)
        living = [launch for launch in host.keeper(self.of_run or "").launches if launch.ended is None]
        return [server for launch in living if (server := survey.of_pid(launch.pid)) is not None and server.start == launch.start]

    def _unclear(self, found: list[Server], survey: Survey) -> str:
        if found:
            rows = ", ".join(f"{one.pid} (`{one.title}`, ports {list(one.ports)})" for one in found[:8])
            return f"{self._how()} fits {len(found)} servers: {rows}; name one by `pid`"
        if self.pid is not None:
            return f"there is no process {self.pid}: it has ended, or is not visible from here"
        if self.match is None and self.of_run is None:
            hidden = survey.hidden_owner(self.port or 0)
            seen = f"nothing listens on port {self.port}, and no command line names it"
            return f"port {self.port} is held by a process that this user may not see: look as its user or as root" if hidden else seen
        return f"no server fits {self._how()}" if self.match else f"run {self.of_run} has no living server on this host"

    def _attached(self, ctx: StepContext, server: Server) -> Launched:
        """Raises RemoteError when it is gone by now, or when its log was named and cannot be read."""
        host = ctx.host
        told = host.describe(server.pid, VARIABLES)
        if told.start != server.start:
            raise RemoteError("not_found", f"process {server.pid} ended while it was looked at, and its pid was used again", "look again")
        profile = ctx.profile(self.profile or server.profile)
        kept = _record(host, told)
        log, note = (self.log, "") if self.log != AUTO else (kept.log, "") if kept else log_of(told)
        if self.log != AUTO:
            host.read(self.log, 0, 1)
        return Launched(
            step=ctx.step,
            host=host.name,
            state=kept if kept and self.log == AUTO else _state(ctx, told, log),
            profile=profile,
            port=self.port or _port(server, told, profile if profile.port_flags else ctx.profile("generic")),
            env=told.env,
            run=told.run if kept else "",
            log_note=note,
        )


def _port(server: Server, told: Described, profile: Profile) -> int | None:
    """Where it answers: as its command says, even while it does not listen there, since the ports of its ranks may be open long before."""
    named = read_port(told.argv, profile)
    if named is not None or profile.default_port in server.ports:
        return named or profile.default_port
    return server.ports[0] if server.ports else None


def _record(host: Host, told: Described) -> LaunchState | None:
    """What a keeper knows of it, when one is its parent."""
    if not told.run:
        return None
    try:
        launches = host.keeper(told.run).launches
    except RemoteError:
        return None  # of another account, or retired since
    return next((launch for launch in launches if (launch.pid, launch.start) == (told.pid, told.start)), None)


def _state(ctx: StepContext, told: Described, log: str) -> LaunchState:
    mark = ctx.host.marks([log])[log] if log else None
    return LaunchState(
        id=ctx.step,
        pid=told.pid,
        start=told.start,
        sid=told.sid,
        log=log,
        log_inode=mark.inode if mark else 0,
        log_offset=0,
        argv=told.argv,
        cwd=told.cwd,
        interpreter=told.exe,
        started=ctx.clock.now() + ctx.host.facts.clock_offset_s - told.age_s,
    )


def _fields(launched: Launched, server: Server) -> dict[str, Any]:
    state = launched.state
    return {
        "pid": state.pid,
        "start": state.start,
        "sid": state.sid,
        "log": state.log or Unknown(launched.log_note or "its log is not known"),
        "port": launched.port if launched.port is not None else Unknown("it listens on no port yet, and its command names none"),
        "argv": list(state.argv),
        "interpreter": state.interpreter,
        "profile": launched.profile.profile,
        "up_for": round(server.age_s, 3),
    }
