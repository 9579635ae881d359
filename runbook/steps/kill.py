"""kill: end processes that were looked up first, named by (pid, start time), and prove that they are gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Union

import msgspec
from msgspec import Meta

from runbook.hosts.base import Host, KillReport, Process, ProcessId, RemoteError
from runbook.model.fields import Pid, Port, ProfileName, Regex, StepRef
from runbook.model.units import Rung
from runbook.steps.base import Step, StepContext, StepResult

ONLY_MENTION = frozenset(
    "vi vim nvim nano emacs less more most man cat head tail grep egrep rg ag sed awk gawk mawk find xargs watch tee bash sh dash zsh"
    " fish tcsh ksh ssh sshd scp rsync tmux screen git journalctl strace gdb py-spy top htop ps pgrep pkill sudo su".split()
)
"""Programs whose argv may mention a server without being one."""
LADDER = (Rung("TERM 15s"), Rung("KILL 10s"))
PASSES = 3
"""Looks after the first ladder: a server may fork while it is being ended."""


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of one match must hold."""

    profile: Annotated[ProfileName | None, Meta(description="processes of this engine: its main process and its renamed workers")] = None
    cmdline: Annotated[Regex | None, Meta(description="searched in argv joined by blanks")] = None
    title: Annotated[Regex | None, Meta(description="searched in comm and in the rewritten title")] = None
    port: Annotated[Port | None, Meta(description="listens on this TCP port")] = None
    gpu: Annotated[Union[Annotated[int, Meta(ge=0)], Literal["any"], None], Meta(description="holds this GPU, or any of the host's")] = None
    cwd: Annotated[str | None, Meta(description="has this working directory")] = None
    user: Annotated[str | None, Meta(description="belongs to this user")] = None


class Kill(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End processes and prove that they are gone.

    Looks first, widens to the tree, session and launch of what it found, leaves alone what is protected (our own ancestry, pid 1,
    sshd, other users', other live runs'), then climbs the ladder. After the first look only (pid, start time) counts.
    """

    TYPE: ClassVar[str] = "kill"
    CHANGES: ClassVar[bool] = True
    TIMEOUT: ClassVar[str] = "1m"
    RESUME: ClassVar[str] = "recheck"
    ENDS: ClassVar[bool] = True
    RESULTS: ClassVar[dict[str, str]] = {
        "targets": "pid, start, user, title, rss of each process that was to end",
        "gone": "those that are gone",
        "left": "those that are not, and why: D state, not permitted, alive",
        "protected": "matches that were left alone, and why",
    }
    EXAMPLE: ClassVar[str] = "kill: {match: {profile: sglang}, ladder: [TERM 15s, KILL 10s]}"

    match: Annotated[
        Union[Match, list[Match], None], Meta(description="what to look for: a mapping (all keys hold) or a list of mappings (any)")
    ] = None
    step: Annotated[StepRef | None, Meta(description="the launch step whose process to end")] = None
    pid: Annotated[Pid | None, Meta(description="one process by pid")] = None
    ladder: Annotated[
        tuple[Rung, ...], Meta(description="signals and how long each may take; left out: the profile's, else `[TERM 15s, KILL 10s]`")
    ] = ()
    tree: Annotated[bool, Meta(description="also the descendants, the session that it leads and its run")] = True
    expect: Annotated[Literal["any", "some", "none"], Meta(description="some: nothing matched is a failure; none: a match is one")] = "any"
    allow_users: Annotated[list[str], Meta(description="users whose processes may be ended besides our own")] = []

    @classmethod
    def disturbs(cls, body: dict[str, Any]) -> str:
        """What others on the host would notice."""
        return "" if "step" in body else "ends processes that this run did not start"

    def problems(self) -> list[tuple[str, str, str]]:
        """Exactly one way to say what to end, and no match that matches everything."""
        found = []
        if sum(value is not None for value in (self.match, self.step, self.pid)) != 1:
            found.append(("", "`kill` needs exactly one of `match`, `step`, `pid`", "write for example `match: {profile: sglang}`"))
        for index, match in enumerate(self.matches()):
            if match == Match():
                path = f"match.{index}" if isinstance(self.match, list) else "match"
                found.append((path, "an empty match would match every process", "name a profile, cmdline, title, port, gpu, cwd or user"))
        return found

    def matches(self) -> list[Match]:
        """The match as a list."""
        if self.match is None:
            return []
        return self.match if isinstance(self.match, list) else [self.match]

    def plan(self) -> list[str]:
        """One line for what would be ended."""
        named = f"the process of `{self.step}`" if self.step else f"pid {self.pid}" if self.pid else f"processes that match {self._words()}"
        known = self.ladder or (() if self.step or any(match.profile for match in self.matches()) else LADDER)
        by = ", then ".join(known) or "the ladder of its profile"
        return [f"end {named} by {by}; prove that they are gone"]

    def _words(self) -> str:
        parts = []
        for match in self.matches():
            keys = {key: value for key, value in msgspec.structs.asdict(match).items() if value is not None}
            parts.append(" and ".join(f"{key} {value}" for key, value in keys.items()))
        return ", or ".join(parts)

    def run(self, ctx: StepContext) -> StepResult:
        """Look, choose, end, prove."""
        host = ctx.host
        launched = ctx.launched(self.step) if self.step is not None else None
        run = launched.run if launched is not None and launched.taken and launched.run else ctx.run.id
        marker = run if self.step is not None else ""
        spare = others(host, run, {launched.state.id}) if launched is not None and not launched.attached else frozenset()
        table = host.processes(run)
        if self.step is not None and ctx.launched(self.step) is None:
            return StepResult(verdict="passed", reason=f"`{self.step}` never started a process here", fields=_fields((), KillReport(), ()))
        if launched is not None and launched.attached:
            reason = f"`{self.step}` attached a server that this run did not start: name its process, `pid: {launched.state.pid}`"
            return StepResult(verdict="refused", reason=reason, fields=_fields((), KillReport(), ()))
        begun = ctx.reentry.acted.get("kill") if ctx.reentry is not None and self.step is None else None
        if begun is not None:  # what it had chosen, and no process that has come since
            chosen = seeds = [p for p in table if (p.pid, p.start) in {(row["pid"], row["start"]) for row in begun["targets"]}]
        else:
            spared = ctx.reuse.runs if self.step is None and ctx.reuse is not None else ()  # their launch steps decide on them
            seeds = [p for p in self._seeds(ctx, host, table) if p.run not in spared]
            chosen = self._chosen(seeds, table, marker, spare)
        targets, protected = split(chosen, self.allow_users)
        refusal = self._refusal(seeds, protected)
        if refusal:
            return StepResult(verdict="refused", reason=refusal, fields=_fields(targets, KillReport(), protected))
        if ctx.check_mode:
            return StepResult(
                verdict="passed", reason=f"would end {len(targets)} processes", fields=_fields(targets, KillReport(), protected)
            )
        tell_keeper(host, run, self.step, targets)
        ladder = self._ladder(ctx)
        with ctx.action("kill", targets=[_row(process) for process in targets], ladder=[str(rung) for rung in ladder]) as done:
            targets, report = end(host, targets, ladder, run, marker, spare)
            done(gone=len(report.gone), left=list(report.left))
        if self.step is not None and not report.left:
            ctx.settle(f"launch:{self.step}:{host.name}", "stopped")
        return self._result(targets, report, protected, bool(begun))

    def _result(self, targets: Sequence[Process], report: KillReport, protected: Sequence[Process], begun: bool) -> StepResult:
        fields = _fields(targets, report, protected)
        if report.left:
            names = ", ".join(f"{row['pid']} ({row.get('why', 'alive')})" for row in report.left)
            return StepResult(verdict="failed", reason=f"still there after the ladder: {names}", fields=fields)
        if self.expect == "some" and not targets and not begun:
            return StepResult(verdict="failed", reason="nothing matched, and `expect: some` asks for a match", fields=fields)
        if self.expect == "none" and targets:
            return StepResult(verdict="failed", reason=f"{len(targets)} processes matched, and `expect: none` asks for none", fields=fields)
        spared = f", {len(protected)} protected and left alone" if protected else ""
        ended = f"{len(report.gone)} process{'' if len(report.gone) == 1 else 'es'} ended" if targets else "nothing to end"
        return StepResult(verdict="passed", reason=ended + spared, fields=fields)

    def _ladder(self, ctx: StepContext) -> tuple[Rung, ...]:
        """As the step says, else as the engine's profile does."""
        if self.ladder:
            return self.ladder
        launched = ctx.launched(self.step) if self.step is not None else None
        named = next((match.profile for match in self.matches() if match.profile), None)
        profile = launched.profile if launched else ctx.profile(named) if named else None
        return tuple(map(Rung.parse, profile.processes.ladder)) if profile else LADDER

    def _seeds(self, ctx: StepContext, host: Host, table: Sequence[Process]) -> list[Process]:
        if self.pid is not None:
            return [process for process in table if process.pid == self.pid]
        if self.step is not None:
            launched = ctx.launched(self.step)
            assert launched is not None
            return launch_processes(table, launched.state.pid, launched.state.start, launched.state.sid)
        found = {process.id: process for match in self.matches() for process in self._matching(ctx, host, match, table)}
        return list(found.values())

    def _matching(self, ctx: StepContext, host: Host, match: Match, table: Sequence[Process]) -> Iterable[Process]:
        found: Iterable[Process] = table
        if match.profile is not None:
            patterns = ctx.profile(match.profile).processes
            main, workers = patterns.main, patterns.workers
            found = [
                p for p in found if (main and is_server(p) and re.search(main, " ".join(p.argv))) or (workers and has_title(p, workers))
            ]
        if match.cmdline is not None:
            found = [p for p in found if is_server(p) and re.search(match.cmdline, " ".join(p.argv))]
        if match.title is not None:
            found = [p for p in found if is_server(p) and has_title(p, match.title)]
        if match.cwd is not None:
            found = [p for p in found if p.cwd == match.cwd]
        if match.user is not None:
            found = [p for p in found if p.user == match.user]
        if match.port is not None:
            owners = {(row.pid, row.start) for row in host.listeners(match.port)}
            found = [p for p in found if (p.pid, p.start) in owners]
        if match.gpu is not None:
            holders = gpu_holders(host, match.gpu, table)
            found = [p for p in found if p.pid in holders]
        return found

    def _chosen(self, seeds: Sequence[Process], table: Sequence[Process], marker: str, spare: Collection[str]) -> list[Process]:
        """What was found, and what belongs to it. What belongs to a protected process is its own: a wrapper's other children."""
        if not self.tree:
            return list(seeds)
        free, spared = split(seeds, self.allow_users)
        found = {process.id for process in (*widen(free, table, marker, spare), *spared)}
        return [process for process in table if process.id in found]

    def _refusal(self, seeds: Sequence[Process], protected: Sequence[Process]) -> str:
        """A target that the author named exactly and that must be left alone: nothing is signalled at all."""
        exact = self.pid is not None or self.step is not None or any(m.port is not None or isinstance(m.gpu, int) for m in self.matches())
        if not exact:
            return ""
        ids = {process.id for process in seeds}
        named = [f"{p.pid} ({p.title}, user {p.user}): {p.protected}" for p in protected if p.id in ids]
        return "named exactly but protected: " + "; ".join(named) + "; nothing was signalled" if named else ""


def tell_keeper(host: Host, run: str, step: str | None, targets: Sequence[Process]) -> None:
    """Before a launch of ours is ended: else its keeper would record a signal that nobody accounts for."""
    if step is None and not any(process.run == run for process in targets):
        return
    ids = {process.id for process in targets}
    for state in host.keeper(run).launches:
        if state.id == step or ProcessId(state.pid, state.start) in ids:
            host.note_kill(run, state.id)


def is_server(process: Process) -> bool:
    """Whether a mention of the text in argv can mean that this is the server: not for editors, pagers, greps or shells."""
    program = process.argv[0].rsplit("/", 1)[-1].lstrip("-") if process.argv else process.comm
    return program not in ONLY_MENTION and process.comm not in ONLY_MENTION


def has_title(process: Process, pattern: str) -> bool:
    """Whether comm or the rewritten title match."""
    return bool(re.search(pattern, process.title) or re.search(pattern, process.comm))


def gpu_holders(host: Host, gpu: int | str, table: Sequence[Process]) -> set[int]:
    """pids that hold a GPU, by the driver's tool and by open device files."""
    indices = host.gpu_indices if gpu == "any" else [int(gpu)]
    by_tool = {holder.pid for row in host.gpus(indices).gpus for holder in row.holders}
    return by_tool | {p.pid for p in table if p.gpus and (indices is None or set(indices) & set(p.gpus))}


def launch_processes(table: Sequence[Process], pid: int, start: int, sid: int) -> list[Process]:
    """The main process of a launch and its session, whoever of them still lives."""
    return [p for p in table if (p.pid, p.start) == (pid, start) or (p.sid == sid and p.start >= start)]


def others(host: Host, run: str, ending: Collection[str]) -> frozenset[str]:
    """The launches of a run on this host that live and are not to end now: their processes carry its marker too."""
    try:
        return frozenset(launch.id for launch in host.keeper(run).launches if launch.ended is None and launch.id not in ending)
    except RemoteError as problem:
        if problem.code != "not_found":
            raise
        return frozenset()


def widen(seeds: Sequence[Process], table: Sequence[Process], run: str, spare: Collection[str] = ()) -> list[Process]:
    """The seeds with their descendants, the sessions that they lead, and all that carries the marker of our run.

    `spare`: launches whose processes that marker does not count for.
    """
    chosen = {p.id for p in seeds}
    leaders = {p.sid for p in seeds if p.sid == p.pid}
    grown = True
    while grown:
        pids = {p.pid for p in table if p.id in chosen}
        more = {p.id for p in table if p.ppid in pids or p.sid in leaders or _marked(p, run, spare)} - chosen
        chosen |= more
        grown = bool(more)
    return [p for p in table if p.id in chosen]


def _marked(process: Process, run: str, spare: Collection[str]) -> bool:
    return bool(run) and process.run == run and process.launch not in spare


def split(chosen: Sequence[Process], allow_users: Sequence[str]) -> tuple[list[Process], list[Process]]:
    """(to end, protected)."""
    spared = [p for p in chosen if p.protected and not (p.protected == "other_user" and p.user in allow_users)]
    ids = {p.id for p in spared}
    return [p for p in chosen if p.id not in ids], spared


def end(
    host: Host, targets: Sequence[Process], ladder: Sequence[str], run: str, marker: str, spare: Collection[str] = ()
) -> tuple[list[Process], KillReport]:
    """Climb the ladder on the targets and on what they forked meanwhile; (all targets, one report of all passes)."""
    everything = list(targets)
    gone: list[ProcessId] = []
    left: list[dict[str, Any]] = []
    todo = list(targets)
    for _ in range(PASSES):
        if not todo:
            break
        report = host.kill([p.id for p in todo], ladder)
        gone += report.gone
        left += report.left
        table = host.processes(run)
        known = {p.id for p in everything}
        leaders = {p.sid for p in everything if p.sid == p.pid}
        todo = [p for p in table if p.id not in known and not p.protected and (p.sid in leaders or _marked(p, marker, spare))]
        everything += todo
    return everything, KillReport(gone=tuple(gone), left=tuple(left))


def _row(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "start": process.start, "user": process.user, "title": process.title, "rss": process.rss}


def _fields(targets: Sequence[Process], report: KillReport, protected: Sequence[Process]) -> dict[str, Any]:
    rows = {process.id: _row(process) for process in targets}
    return {
        "targets": list(rows.values()),
        "gone": [rows[id] for id in report.gone if id in rows],
        "left": list(report.left),
        "protected": [{**_row(process), "why": process.protected} for process in protected],
    }
