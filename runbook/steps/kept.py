"""What an earlier run kept (`run --reuse`): whether a server is the one that a launch step would start now, and why not."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Protocol

import msgspec

from runbook.hosts.base import Host, LaunchState, RemoteError
from runbook.steps.base import Launched, Patched, StepContext

if TYPE_CHECKING:
    from runbook.steps.launch import Launch


class Reusable(Protocol):
    """A run that is reused (`run --reuse`), as a step on one host sees it. What has been taken or ended is not offered again."""

    run: str
    """Its id."""
    runs: frozenset[str]
    """The runs whose markers and records its things carry: its own, and those from which it had taken some over."""

    @property
    def launch(self) -> Launched | None:
        """What its step of this name launched here and it kept."""
        ...

    @property
    def patch(self) -> Patched | None:
        """What its step of this name patched here and it kept."""
        ...

    def loaded(self, launch: Launched) -> list[str]:
        """Steps whose patches that server may have loaded, and that were not taken over."""
        ...

    def take(self, thing: Launched | Patched) -> None:
        """It is this run's from now on, to refer to and to end."""
        ...

    def stop(self, launch: Launched) -> None:
        """End its server."""
        ...

    def restore(self, patch: Patched) -> None:
        """Undo its patch."""
        ...


def take_kept(ctx: StepContext, reuse: Reusable, step: Launch, env: dict[str, str]) -> Launched | None:
    """The server that the other run kept, now this run's. None: there was none that fits; what was left of it has been ended. Raises
    HostError."""
    kept = reuse.launch
    if kept is None:
        return None
    run = kept.run or reuse.run
    state = _living(ctx.host, run, kept)
    why = f"pid {kept.state.pid} has ended" if state is None else difference(ctx, reuse, kept, state, step, env)
    if state is None or why:
        ctx.find("not_reused", f"`{ctx.step}` of run {reuse.run} is not taken over, so it is started anew: {why}")
        reuse.stop(kept)
        return None
    taken = msgspec.structs.replace(kept, state=state, run=run, taken=True)
    reuse.take(taken)
    return taken


def difference(ctx: StepContext, reuse: Reusable, kept: Launched, state: LaunchState, step: Launch, env: dict[str, str]) -> str:
    """How the server differs from what the step would start: command, folder, variables, patches. Empty when in nothing."""
    facts = ctx.host.facts
    cwd = posixpath.normpath(posixpath.join(facts.cwd, step.cwd.replace("~", facts.home, 1) if step.cwd.startswith("~") else step.cwd))
    if not _same_command(state.argv, step):
        return f"its command is `{' '.join(state.argv)[:300]}`"
    if state.cwd != cwd:
        return f"its working directory is {state.cwd}, not {cwd}"
    if bool(state.dump_env) != (step.dumps == "full"):
        return "`dumps` is not what it was started with"
    had = {name: value for name, value in kept.env.items() if name not in state.dump_env}
    if changed := sorted(name for name in {*had, *env} if had.get(name) != ctx.masked(env.get(name))):
        return f"its environment differs in {', '.join(changed)}"
    mine = [patch for patch in ctx.patches() if patch.launch in (None, ctx.step)]
    if new := [patch.step for patch in mine if patch.record.run not in reuse.runs]:
        return f"it has not loaded the patch `{new[0]}` of this run"
    if old := reuse.loaded(kept):
        return f"it may have loaded the patch `{old[0]}`, which this run does not make"
    return ""


def _same_command(argv: tuple[str, ...], step: Launch) -> bool:
    """By the form in which a keeper executes it: a list as it is, text and a prelude through a shell."""
    words = step.argv()
    if words and not step.prelude:
        return argv == words
    text = "\n".join(part for part in (step.prelude, str(step.command) if not words else 'exec "$@"') if part)
    return argv[1:3] == ("-c", text) and argv[4:] == words


def _living(host: Host, run: str, kept: Launched) -> LaunchState | None:
    """The server as its keeper knows it, when it lives."""
    try:
        known = {state.id: state for state in host.keeper(run).launches}
    except RemoteError:
        return None  # retired since: nothing of that run is left there
    state = known.get(kept.step)
    same = state is not None and (state.pid, state.start) == (kept.state.pid, kept.state.start)
    return state if same and state is not None and state.ended is None else None
