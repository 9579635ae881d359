"""`runbook cancel`: end a run from anywhere: its `always`, then what is still owed. The controller of a running one does it itself."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import secrets, store
from runbook.cli.params import DURATION
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.lock import Held
from runbook.engine.redact import looks_secret
from runbook.model.clock import SystemClock
from runbook.model.event import RunStarted
from runbook.model.playbook import Playbook, Target
from runbook.model.verdict import EXIT_CODES
from runbook.render.story import tell


@click.command()
@click.argument("run")
@click.option("--for", "for_s", type=DURATION, default="10m", show_default=True, help="Wait at most this long for a running one's cleanup.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str, for_s: float, as_json: bool) -> int:
    """End RUN (an id, its beginning, `last`, or a folder): running, suspended, or without a controller; or what it kept (`run --keep`).

    Its `always` steps run, then launches are stopped and patches undone. A running one is asked to do so itself: exit 75 when its cleanup
    takes longer than --for, 8 when its controller does not hear.
    """
    from runbook.cli import live, perform
    from runbook.cli.ask import ask_to_cancel
    from runbook.engine.journal import repair_torn_line
    from runbook.engine.resume import cancel
    from runbook.engine.runtime import Options
    from runbook.engine.state import fold

    folder = last_open() if run == "last" else store.find_run(run)
    events = store.read_run(folder)
    state = fold(events)
    header = state.header
    if header is None:
        raise click.UsageError(f"{folder.name} has no header: nothing ran, so there is nothing to cancel")
    kept = state.ended is not None and bool(state.owed)
    if state.ended is not None and not kept:
        click.echo(f"{header.run} has ended already: {state.ended.verdict}", err=True)
        return perform.finish(folder, as_json)
    if not kept and state.suspended is None and store.is_alive(state.controller):
        code = ask_to_cancel(folder, tell(events), SystemClock(), for_s=for_s, as_json=as_json)
        if code is not None:
            return code
        events = store.read_run(folder)
    repair_torn_line(folder)
    clock = SystemClock()
    known, unset = secrets_of(folder, header)
    for name in unset:
        click.echo(f"the secret {name} is not set now, so it cannot be masked: the server's log is not fetched", err=True)
    options = Options(
        run=header.run,
        dir=str(folder),
        overrides=header.overrides,
        check=header.check,
        no_suspend=True,
        argv=header.argv,
        unmasked=unset,
    )
    playbook = rebuild(header)
    runtime = perform.runtime(playbook, options, known, clock, first=len(events), cwd=header.controller.get("cwd"))
    try:
        with store.hold(folder, perform.controller(), events=len(events)), live.follower(clock, quiet=False) as follower:
            runtime.journal.follow(follower.follow)
            ended = cancel(runtime, events, functools.partial(perform.leave, options, as_json))
    except Held as held:
        click.echo(f"{header.run}: {held}", err=True)
        return EXIT_CODES["refused"]
    perform.finish(folder, as_json, () if header.check or "--no-post" in header.argv else playbook.post, ended)
    return EXIT_CODES["passed"] if ended.cleanup != "failed" else ended.exit_code


def secrets_of(folder: Path, header: RunStarted) -> tuple[dict[str, str], list[str]]:
    """The run's secrets that their sources give now, and the names of those that were masked then and cannot be now."""
    journal = (folder / EVENTS).read_text("utf-8", "replace")
    masked = set(re.findall(r"\*\*\*(\w+)\*\*\*", journal)) & {*header.secrets, *filter(looks_secret, header.overrides)}
    known = {name: os.environ[name] for name in {*header.secrets, *masked} if os.environ.get(name)}
    if any(name not in known for name in header.secrets):
        where = Path(header.controller.get("cwd") or "") / header.playbook
        known.update(secrets.read(rebuild(header).secrets, os.environ, where.parent)[0])
    return known, sorted(masked - set(known))


def rebuild(header: RunStarted) -> Playbook:
    """The playbook as it ran, from the journal alone: its text, its variables, its targets."""
    from runbook.cli.sources import profile_names
    from runbook.playbook.build import load_playbook
    from runbook.steps import TABLE

    playbook, problems = load_playbook(
        header.playbook_text.encode(),
        header.playbook,
        table=TABLE,
        profiles=profile_names(os.path.join(header.controller.get("cwd") or "", header.playbook)),
        host_vars=list(header.vars),
        read=lambda file: header.files.get(file, "").encode(),
        find=lambda name, file: header.includes.get(file, {}).get(name),
    )
    if playbook is None:
        raise click.UsageError(f"the playbook of this run is not valid for this version of runbook: {problems[0].summary}")
    targets: dict[str, Any] = {role: tuple(msgspec.convert(item, Target) for item in items) for role, items in header.targets.items()}
    return msgspec.structs.replace(playbook, vars=header.vars, hosts=targets)


def last_open() -> Path:
    """The newest run that has not ended: what was looked at since is not meant. Without one, the newest."""
    from runbook.engine.recording import glance
    from runbook.model.event import RunEnded

    for folder in store.run_folders():
        with contextlib.suppress(JournalError):
            if not any(isinstance(event, RunEnded) for event in glance(folder)):
                return folder
    return store.find_run("last")
