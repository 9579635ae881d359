"""`runbook show`: what a run did and why it ended so."""

from __future__ import annotations

import json

import click

from runbook.cli import store
from runbook.model.clock import SystemClock
from runbook.model.verdict import EXIT_CODES
from runbook.render.lines import Lines
from runbook.render.markdown import markdown
from runbook.render.story import tell
from runbook.render.summary import running, summary

STALE = {
    "expired": "expired: its time was over, so the keeper on the host has stopped its servers and restored its files by itself",
    "lost": "lost: its controller has died, so the keeper on the host stops its servers and restores its files when their time is over",
}


@click.command()
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print the same JSON object as `run --json`.")
@click.option("--md", "as_markdown", is_flag=True, help="Print the Markdown transcript.")
def command(run: str, as_json: bool, as_markdown: bool) -> int:
    """Show RUN (an id, its beginning, `last`, or a folder)."""
    folder = store.find_run(run)
    events = store.read_run(folder)
    story = tell(events)
    stale = store.stale(story, SystemClock().now())
    if as_json:
        transcript = folder / "transcript.md"
        answer = summary(events, str(folder), {"markdown": str(transcript) if transcript.exists() else None, "html": None})
        more = running(story) if story.state == "running" else {}
        click.echo(json.dumps({**answer, **more, "stale": stale}, ensure_ascii=False))
        return EXIT_CODES["passed"]
    if as_markdown:
        click.echo(markdown(events), nl=False)
        return EXIT_CODES["passed"]
    lines = Lines()
    for event in events:
        for line in lines.lines(event):
            click.echo(line)
    if stale:
        click.echo(f"{STALE[stale]}; `runbook cancel {folder.name}` makes sure and ends the run")
    click.echo(f"\nfolder: {folder}")
    return EXIT_CODES["passed"]
