"""`runbook resume`: go on with a run that has no end: suspended, or its controller died."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import recorded, reuse, store
from runbook.cli.load import read_secrets
from runbook.cli.params import DURATION
from runbook.engine.lock import Held
from runbook.engine.past import Past
from runbook.engine.state import fold
from runbook.model.clock import SystemClock
from runbook.model.event import RunStarted
from runbook.model.masked import mark
from runbook.model.verdict import EXIT_CODES


@click.command()
@click.argument("run")
@click.option("--redo", multiple=True, metavar="STEP", help="Run this step again, of which it is not known whether it ran.")
@click.option("--skip", multiple=True, metavar="STEP", help="Go on after this step; what it would have given is unknown.")
@click.option("--wait-for", type=DURATION, help="Leave the run alone and follow it for this long; exit 75 when it still goes on.")
@click.option("--detach", is_flag=True, help="Leave the run alone and print its id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(run: str, redo: tuple[str, ...], skip: tuple[str, ...], wait_for: float | None, detach: bool, as_json: bool) -> int:
    """Go on with RUN (an id, its beginning, `last`, or a folder): suspended, or its controller died.

    Steps that have ended are not run again. A wait that was in flight begins anew, a launch or a patch is looked up on its host. Of a
    script, a copy or a request that sends something it cannot be known: the run stops there, exit 9, until --redo or --skip says what
    is right. Secrets are read from the environment again.
    """
    folder = (recorded.last_open() if run == "last" else store.find_run(run)).absolute()
    work = functools.partial(_held, folder, redo, skip, as_json)
    if (detach or wait_for is not None) and fold(store.read_run(folder)).ended is None:
        from runbook.cli import worker

        apart = functools.partial(work, quiet=True)
        return worker.apart(folder, apart, SystemClock(), wait_for=wait_for, as_json=as_json, from_start=False)
    return work()


def _held(folder: Path, redo: tuple[str, ...], skip: tuple[str, ...], as_json: bool, *, quiet: bool = False) -> int:
    from runbook.cli import perform

    try:
        with store.hold(folder, perform.controller()):
            return _resume(folder, redo, skip, as_json, quiet)
    except Held as held:
        click.echo(f"{folder.name}: {held}", err=True)
        return EXIT_CODES["refused"]


def _resume(folder: Path, redo: tuple[str, ...], skip: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    from runbook.cli import live, perform
    from runbook.cli.finish import finish
    from runbook.cli.prompt import asker
    from runbook.engine.journal import repair_torn_line
    from runbook.engine.resume import past_of, resume
    from runbook.hosts.base import HostError

    events = store.read_run(folder)
    state = fold(events)
    header = state.header
    if header is None:
        way = f"`runbook cancel {store.name_of(folder)}` ends what it may have left on its hosts"
        raise click.UsageError(f"{folder.name}: {recorded.no_beginning(folder)}, so it cannot be gone on with; {way}")
    if state.ended is not None:
        click.echo(f"{header.run} has ended already: {state.ended.verdict}", err=True)
        return finish(folder, as_json)
    if state.suspended is None and store.is_alive(state.controller):
        where = f"pid {state.controller.get('pid')} on {state.controller.get('host')}"
        click.echo(f"{header.run} is still running ({where}): `runbook show --follow {header.run}` shows it", err=True)
        return EXIT_CODES["refused"]
    with contextlib.suppress(OSError):  # relative paths of the playbook count from where it was started
        os.chdir(header.controller.get("cwd") or ".")
    again = Again(folder, header)
    for name in again.unmasked:
        click.echo(f"the secret {name} is not set now, so it cannot be masked: the server's log is not fetched", err=True)
    past = past_of(again.playbook, events, redo, skip)
    _check(past)
    repair_torn_line(folder)
    clock = SystemClock()
    options = recorded.options(folder, header, again.overrides, again.unmasked, no_suspend=header.no_suspend, keep=header.keep)
    runtime = perform.runtime(again.playbook, options, again.secrets, clock, first=len(events), cwd=header.controller.get("cwd"))
    runtime.ask = None if quiet else asker(clock)
    with contextlib.suppress(click.UsageError):  # the other run's folder is gone: then there is nothing more to take over
        runtime.reused = reuse.earlier(header.reuse) if header.reuse else None
    asks = runtime.ask is not None and any(node.type == "pause" for node in runtime.nodes.values())
    with live.follower(clock, quiet=quiet, plain=asks) as follower:
        runtime.journal.follow(follower.follow)
        leave = functools.partial(perform.leave, options, as_json)
        try:
            ended = resume(runtime, events, past, leave, perform.controller())
        except HostError as problem:
            click.echo(f"{header.run} was not resumed: {problem.summary}" + (f"; {problem.hint}" if problem.hint else ""), err=True)
            return EXIT_CODES["unreachable"]
    code = finish(folder, as_json, () if header.check or "--no-post" in header.argv else again.playbook.post, ended)
    return ended.exit_code or code


class Again:
    """What a run is gone on with: its playbook, its overrides and its secrets, whose values the environment gives once more."""

    def __init__(self, folder: Path, header: RunStarted) -> None:
        secrets, self.unmasked = recorded.secrets_of(folder, header)
        for name in self.unmasked:
            if name in header.overrides:
                raise click.UsageError(f"the value of `-e {name}=…` is a secret, so the journal does not have it: run with {name}=… set")
        whole = _with_its_text(header)
        overrides, vars = _revived(header.overrides, secrets), _revived(header.vars, secrets)
        self.playbook = msgspec.structs.replace(recorded.rebuild(whole), vars=vars)
        self.overrides: dict[str, Any] = overrides
        self.secrets, problems = read_secrets(self.playbook, overrides, os.environ)
        if problems:
            raise click.UsageError("; ".join(f"{one.summary}: {one.hint}" for one in problems))


def _with_its_text(header: RunStarted) -> RunStarted:
    """The header with the playbook as it was read. Where that was masked in the journal, its file must still be the same."""
    files = {header.playbook: header.playbook_text, **header.files}
    if _is_whole(header, files):
        return header
    try:
        read = {name: Path(header.controller.get("cwd") or "", name).read_text("utf-8") for name in files}
    except (OSError, UnicodeDecodeError):
        read = {}
    if not _is_whole(header, read):
        raise click.UsageError(f"the journal's copy of the playbook is masked, and {header.playbook} is not the file that was run")
    return msgspec.structs.replace(header, playbook_text=read.pop(header.playbook), files=read)


def _is_whole(header: RunStarted, files: Mapping[str, str]) -> bool:
    return hashlib.sha256("".join(files.values()).encode()).hexdigest() == header.playbook_sha256


def _revived(value: Any, secrets: Mapping[str, str]) -> Any:
    """Plain data with the values of these secrets in the place of their marks."""
    if isinstance(value, str):
        return functools.reduce(lambda text, name: text.replace(mark(name), secrets[name]), secrets, value) if "***" in value else value
    if isinstance(value, dict):
        return {key: _revived(item, secrets) for key, item in value.items()}
    return [_revived(item, secrets) for item in value] if isinstance(value, (list, tuple)) else value


def _check(past: Past) -> None:
    """--redo and --skip name what was in flight, and not both the same."""
    flying = sorted({key.step for key in past.flights})
    for option, names in (("--redo", past.redo), ("--skip", past.skip)):
        for name in sorted(names):
            if name not in flying:
                there = f"in flight: {', '.join(flying)}" if flying else "no step was in flight"
                raise click.UsageError(f"{option} {name}: that step was not in flight when the controller died ({there})")
    if both := past.redo & past.skip:
        raise click.UsageError(f"`{min(both)}` is named by --redo and by --skip: choose one")
