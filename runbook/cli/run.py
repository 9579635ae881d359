"""`runbook run`: run a playbook and answer with a verdict and its evidence."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import click

from runbook.cli import command_line, confirm, load, reuse, sources, store
from runbook.cli.choosing import left_out, split
from runbook.cli.diffs import show_diff
from runbook.cli.run_options import Choice, options
from runbook.cli.unheld import unheld
from runbook.model.clock import Clock, SystemClock
from runbook.model.verdict import EXIT_CODES


@click.command()
@click.argument("playbook")
@options
def command(**chosen: Any) -> int:
    """Run PLAYBOOK and answer with a verdict and its evidence.

    Progress goes to stderr, the transcript into the run's folder. `validate` tells what is wrong with a playbook without running it.
    With --wait-for or --detach the run goes on whatever becomes of this command and its terminal: `wait`, `show` and `cancel` take its id.
    """
    choice = Choice(**chosen)
    if choice.detach and choice.wait_for is not None:
        raise click.UsageError("--detach and --wait-for exclude each other: both leave the run alone, and --detach follows it for no time")
    loaded = load.load(choice.playbook, choice.roles, choice.overrides)
    command_line.hide(loaded.secrets.values())
    if not loaded.ok or loaded.playbook is None:
        return refuse(loaded, choice.as_json)
    if loaded.diagnostics:
        show_problems(loaded)
    unchosen = left_out(loaded.playbook, choice)
    if choice.reuse is not None:
        reuse.earlier(choice.reuse)
    open_questions = [] if choice.check else confirm.unconfirmed(loaded.playbook, yes=choice.yes, left_out=unchosen)
    if open_questions:
        return refuse(loaded._replace(diagnostics=open_questions), choice.as_json, "refused")
    if mortal := unheld(loaded.playbook, sources.read_inventory()[0], unchosen):
        return refuse(loaded._replace(diagnostics=mortal), choice.as_json, "refused")
    clock = SystemClock()
    place = store.fresh_place(clock.now(), choice.out)
    if choice.detach or choice.wait_for is not None:
        from runbook.cli import worker

        work = functools.partial(perform_run, choice, loaded, place, clock, quiet=True)
        return worker.apart(place.folder, work, clock, wait_for=choice.wait_for, as_json=choice.as_json)
    return perform_run(choice, loaded, place, clock)


def perform_run(choice: Choice, loaded: load.Loaded, place: store.Place, clock: Clock, *, quiet: bool = False) -> int:
    """Run what is loaded in this process, to its end or suspension; answer the exit code."""
    assert loaded.playbook is not None
    from runbook.cli import live, perform
    from runbook.cli.prompt import asker
    from runbook.engine.execute import execute
    from runbook.engine.runtime import Options
    from runbook.engine.stepping import Stepping

    run, folder = place
    asked = Options(
        run=run,
        dir=str(folder),
        overrides=loaded.overrides,
        check=choice.check,
        no_suspend=choice.no_suspend,
        keep=choice.keep,
        diff=choice.diff,
        tags=split(choice.tags),
        skip_tags=split(choice.skip_tags),
        start_at=choice.start_at or "",
        wait_lease_s=choice.wait_lease,
        argv=sys.argv[1:],
    )
    runtime = perform.runtime(loaded.playbook, asked, loaded.secrets, clock)
    runtime.reused = reuse.earlier(choice.reuse) if choice.reuse is not None else None
    runtime.ask = None if quiet else asker(clock)
    runtime.stepping = Stepping() if choice.step else None
    asks = runtime.ask is not None and (choice.step or any(node.type == "pause" for node in runtime.nodes.values()))
    plain = asks or choice.diff
    store.remember(place)
    hosts = sorted({target.target for targets in loaded.playbook.hosts.values() for target in targets})
    with (
        store.hold(folder, {**perform.controller(), store.RUN: run, store.HOSTS: hosts}),
        live.follower(clock, quiet=quiet, plain=plain) as follower,
    ):
        runtime.journal.follow(follower.follow)
        if choice.diff and not quiet:
            runtime.journal.follow(show_diff)
        ended = execute(runtime, functools.partial(perform.leave, asked, choice.as_json), perform.controller())
    from runbook.cli.finish import finish  # it was loaded meanwhile

    code = finish(folder, choice.as_json, () if choice.check or choice.no_post else loaded.playbook.post, ended)
    return ended.exit_code or code


def refuse(loaded: load.Loaded, as_json: bool, verdict: str = "invalid") -> int:
    """Say what is wrong with the playbook, or what was not confirmed; nothing ran."""
    if as_json:
        from runbook.render.diagnostics import as_object

        click.echo(json.dumps(as_object(loaded.diagnostics, verdict), ensure_ascii=False))
    show_problems(loaded)
    return EXIT_CODES[verdict]


def show_problems(loaded: load.Loaded) -> None:
    """All diagnostics on stderr."""
    from runbook.render.diagnostics import as_text

    click.echo(as_text(loaded.diagnostics, sources.source_texts(loaded.diagnostics)), err=True, nl=False)
