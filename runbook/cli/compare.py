"""`runbook compare`: what differs between two runs, or between a run and the last good ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import msgspec

from runbook.cli import store
from runbook.cli.report import find
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.recording import glance, load_recording
from runbook.model.event import AnyEvent, RunStarted
from runbook.render.compare import Comparison, against
from runbook.render.comparison import as_html, as_text
from runbook.render.facts import Facts, facts
from runbook.render.story import tell


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option("--baseline", type=click.IntRange(1, 100), metavar="N", help="Compare A with the last N passed runs of its playbook.")
@click.option("--format", "form", type=click.Choice(["text", "html", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
def command(a: str, b: str | None, baseline: int | None, form: str, as_json: bool) -> int:
    """Show what differs between the runs A and B: verdict, flags, versions, durations, probe values, metrics, log lines.

    A run is an id, its beginning, `last`, a folder, or an events.jsonl. The exit code is 0 when both have the same verdict, else 1.
    """
    if (b is None) == (baseline is None):
        raise click.UsageError("name two runs, or one run and --baseline N")
    if b is not None:
        result = against([_facts(a)], _facts(b))
    else:
        folder, file = find(a)
        result = against(_good(folder, file, baseline or 1), _read(a, folder, file))
    click.echo(_shown(result, "json" if as_json else form), nl=False)
    return 0 if result.same_verdict else 1


def _shown(result: Comparison, form: str) -> str | bytes:
    if form == "json":
        return json.dumps(msgspec.to_builtins(result), ensure_ascii=False) + "\n"
    return as_html(result).encode() if form == "html" else as_text(result, shutil.get_terminal_size((100, 24)).columns)


def _facts(run: str) -> Facts:
    folder, file = find(run)
    return _read(run, folder, file)


def _read(run: str, folder: Path, file: str) -> Facts:
    try:
        return facts(load_recording(folder, file))
    except JournalError as problem:
        raise click.UsageError(f"{run}: {problem}") from problem


def _good(folder: Path, file: str, most: int) -> list[Facts]:
    """The last passed runs of the same playbook, newest first, without this one."""
    header = tell(_glance(folder, file)).header
    if header is None:
        raise click.UsageError(f"{folder / file} has no header: its playbook is not known")
    found: list[Facts] = []
    for other in store.run_folders():
        if len(found) == most:
            break
        try:
            story = tell(glance(other))
        except JournalError:
            continue  # `runbook runs` says that it cannot be read
        passed = story.ended is not None and story.ended.verdict == "passed"
        if passed and story.header is not None and _same_playbook(story.header, header) and other.resolve() != folder.resolve():
            found.append(_read(other.name, other, EVENTS))
    if not found:
        raise click.UsageError(f"no run of `{header.name or header.playbook}` has passed on this machine: name two runs")
    return found


def _glance(folder: Path, file: str) -> list[AnyEvent]:
    try:
        return glance(folder, file)
    except JournalError as problem:
        raise click.UsageError(f"{folder / file}: {problem}") from problem


def _same_playbook(one: RunStarted, other: RunStarted) -> bool:
    """By name and file name: its text may have changed, and that is one of the differences. Check mode tried nothing."""
    return not one.check and (one.name, Path(one.playbook).name) == (other.name, Path(other.playbook).name)
