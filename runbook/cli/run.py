"""`runbook run`: run a playbook and answer with a verdict and its evidence."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import click

from runbook.cli import load, sources, store
from runbook.model.clock import SystemClock
from runbook.model.verdict import EXIT_CODES


@click.command()
@click.argument("playbook")
@click.option("-H", "--host", "roles", multiple=True, metavar="ROLE=TARGET", help="Run a role on another target.")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Override a variable, or all of a YAML file.")
@click.option("--check", is_flag=True, help="Look, change nothing, say what would be done.")
@click.option("--no-suspend", is_flag=True, help="Clean up also when a wait ends slow or undecided.")
@click.option("--no-post", is_flag=True, help="Do not post to the tickets that the playbook names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of this run [a new one in the state folder].")
def command(
    playbook: str,
    roles: tuple[str, ...],
    overrides: tuple[str, ...],
    check: bool,
    no_suspend: bool,
    no_post: bool,
    as_json: bool,
    out: Path | None,
) -> int:
    """Run PLAYBOOK and answer with a verdict and its evidence.

    Progress goes to stderr, the transcript into the run's folder. `validate` tells what is wrong with a playbook without running it.
    """
    loaded = load.load(playbook, roles, overrides)
    if not loaded.ok or loaded.playbook is None:
        return refuse(loaded, as_json)
    from runbook.cli import live, perform
    from runbook.engine.execute import execute
    from runbook.engine.runtime import Options

    if loaded.diagnostics:
        show_problems(loaded)
    clock = SystemClock()
    run = store.fresh_id(clock.now())
    folder = (out or store.runs_folder() / run).absolute()
    if (folder / "events.jsonl").exists():
        raise click.UsageError(f"{folder} holds a run already: name another folder")
    options = Options(run=run, dir=str(folder), overrides=loaded.overrides, check=check, no_suspend=no_suspend, argv=sys.argv[1:])
    runtime = perform.runtime(loaded.playbook, options, loaded.secrets, clock)
    with live.follower(clock, quiet=False) as follower:
        runtime.journal.follow(follower.follow)
        ended = execute(runtime, functools.partial(perform.leave, options, as_json), perform.controller())
    code = perform.finish(folder, as_json, () if check or no_post else loaded.playbook.post)
    return ended.exit_code or code


def refuse(loaded: load.Loaded, as_json: bool) -> int:
    """Say what is wrong with the playbook; nothing ran."""
    if as_json:
        from runbook.render.diagnostics import as_object

        click.echo(json.dumps(as_object(loaded.diagnostics), ensure_ascii=False))
    show_problems(loaded)
    return EXIT_CODES["invalid"]


def show_problems(loaded: load.Loaded) -> None:
    """All diagnostics on stderr."""
    from runbook.render.diagnostics import as_text

    click.echo(as_text(loaded.diagnostics, sources.source_texts(loaded.diagnostics)), err=True, nl=False)
