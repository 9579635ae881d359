"""`runbook runs`: the runs on this machine."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from runbook.cli import store
from runbook.engine.journal import JournalError, load_events
from runbook.model.clock import SystemClock
from runbook.model.units import format_duration
from runbook.render.story import tell


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list on stdout.")
@click.option("-n", "--most", default=20, show_default=True, help="How many, newest first.")
def command(as_json: bool, most: int) -> int:
    """List the runs on this machine, newest first."""
    now = SystemClock().now()
    rows = [row(folder, now) for folder in store.run_folders()[:most]]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return 0
    if not rows:
        click.echo(f"no runs in {store.runs_folder()}", err=True)
    for found in rows:
        started = f"{datetime.fromtimestamp(found['started']):%Y-%m-%d %H:%M:%S}" if found["started"] else "-"
        took = format_duration(found["seconds"]) if found["seconds"] is not None else "-"
        state = found["stale"] or found["state"]
        click.echo(f"{found['run']}  {started}  {state:10}  {found['verdict'] or '-':18}  {took:>8}  {found['name']}")
    return 0


def row(folder: Path, now: float) -> dict[str, Any]:
    """One run; an unreadable journal is said, not hidden."""
    try:
        story = tell(load_events(folder))
    except JournalError as problem:
        nothing = {"started": None, "state": "unreadable", "stale": None, "verdict": None, "seconds": None}
        return {"run": folder.name, **nothing, "name": str(problem)}
    header, closing = story.header, story.closing
    return {
        "run": header.run if header else folder.name,
        "started": header.t if header else None,
        "state": story.state,
        "stale": store.stale(story, now),
        "verdict": closing.verdict if closing else None,
        "seconds": story.last_t - header.t if header else None,
        "name": header.name if header else "",
    }
