"""`runbook runs`: the runs on this machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from runbook.cli import store
from runbook.engine.journal import JournalError
from runbook.engine.recording import glance
from runbook.model.clock import SystemClock
from runbook.model.units import Duration, UnitError, format_duration
from runbook.model.verdict import EXIT_CODES
from runbook.render.inert import one_line
from runbook.render.story import tell

STATES = ("ended", "suspended", "running", "expired", "lost", "unreadable")
LONGEST_NAME = 200


@click.command()
@click.option("--verdict", "verdicts", multiple=True, type=click.Choice(sorted(EXIT_CODES)), help="Only these; may be repeated.")
@click.option("--playbook", help="Only runs whose playbook's name or file contains this text.")
@click.option("--since", metavar="DURATION", help="Only runs that began within this time, as `2d` or `90m`.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only these; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list on stdout.")
@click.option("-n", "--most", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def command(verdicts: tuple[str, ...], playbook: str | None, since: str | None, states: tuple[str, ...], as_json: bool, most: int) -> int:
    """List the runs on this machine, newest first."""
    now = SystemClock().now()
    begun = now - _since(since)
    found = []
    for one in (row(folder, now) for folder in store.run_folders()):
        if _wanted(one, verdicts, playbook, begun, states):
            found.append(one)
        if len(found) == most:
            break
    if as_json:
        click.echo(json.dumps([{key: value for key, value in one.items() if key != "playbook"} for one in found], ensure_ascii=False))
        return 0
    if not found:
        filtered = verdicts or playbook or since or states
        click.echo(f"no runs in {store.runs_folder()}{' match' if filtered else ''}", err=True)
    for line in _lines(found):
        click.echo(line)
    return 0


def _since(text: str | None) -> float:
    if text is None:
        return float("inf")
    try:
        return float(Duration.parse(text))
    except UnitError as problem:
        raise click.UsageError(f"--since: {problem}; {problem.hint}") from problem


def _wanted(one: dict[str, Any], verdicts: tuple[str, ...], playbook: str | None, begun: float, states: tuple[str, ...]) -> bool:
    if verdicts and one["verdict"] not in verdicts:
        return False
    if states and (one["stale"] or one["state"]) not in states:
        return False
    if playbook and playbook.casefold() not in f"{one['name']}\n{Path(one['playbook']).name}".casefold():
        return False
    return begun == float("-inf") or (one["started"] is not None and one["started"] >= begun)


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line a run, its columns as wide as they must be; on a terminal the name is cut at the edge."""
    cells = []
    for one in rows:
        started = f"{datetime.fromtimestamp(one['started']):%Y-%m-%d %H:%M:%S}" if one["started"] else "-"
        took = format_duration(one["seconds"]) if one["seconds"] is not None else "-"
        cells.append((one["run"], started, one["stale"] or one["state"], one["verdict"] or "-", took, one_line(one["name"], LONGEST_NAME)))
    widths = [max(len(row[column]) for row in cells) for column in range(5)] if cells else []
    edge = _edge()
    for row in cells:
        line = "  ".join([*(f"{text:<{width}}" for text, width in zip(row[:5], widths, strict=True)), row[5]]).rstrip()
        yield line if edge is None or len(line) <= edge else line[: edge - 1] + "…"


def _edge() -> int | None:
    """Columns of the terminal; None where nothing is cut, as in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def row(folder: Path, now: float) -> dict[str, Any]:
    """One run; an unreadable journal is said, not hidden."""
    try:
        story = tell([] if store.is_blank(folder) else glance(folder))
    except JournalError as problem:
        nothing = {"started": None, "state": "unreadable", "stale": None, "verdict": None, "seconds": None}
        return {"run": folder.name, **nothing, "name": str(problem), "playbook": ""}
    header, closing = story.header, story.closing
    answered = "" if story.state == "ended" else store.answered(folder)
    return {
        "run": one_line(header.run, 100) if header else folder.name,
        "started": header.t if header else None,
        "state": "ended" if answered else story.state,
        "stale": None if answered else store.stale(story, now, folder),
        "verdict": answered or (closing.verdict if closing else None),
        "seconds": story.last_t - header.t if header else None,
        "name": header.name if header else "",
        "playbook": header.playbook if header else "",
    }
