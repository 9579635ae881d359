"""`runbook show`: what a run did and why it ended so."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click
import msgspec

from runbook.cli import recorded, store
from runbook.cli.report import find
from runbook.engine.journal import JournalError
from runbook.engine.recording import glance, load_recording
from runbook.model.clock import SystemClock
from runbook.model.event import AnyEvent, RunEnded, RunSuspended
from runbook.model.verdict import EXIT_CODES
from runbook.render.lines import Lines
from runbook.render.markdown import markdown
from runbook.render.story import Story, tell
from runbook.render.summary import running, summary

STALE = {
    "expired": "expired: its time was over, so the keeper on the host has stopped its servers and restored its files by itself",
    "lost": "lost: its controller has died, so the keeper on the host stops its servers and restores its files when their time is over",
}


@click.command()
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print the same JSON object as `run --json`.")
@click.option("--md", "as_markdown", is_flag=True, help="Print the Markdown transcript.")
@click.option(
    "--explain", "explained", is_flag=True, help="Explain the verdict in plain words: what it rests on, how sure it is, what to do."
)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on showing until the run ends; Ctrl-C leaves it alone.")
@click.option("--cursor", type=click.IntRange(min=0), help="With --json: the events from this line of the journal on, and the next cursor.")
def command(run: str, as_json: bool, as_markdown: bool, explained: bool, following: bool, cursor: int | None) -> int:
    """Show RUN (an id, its beginning, `last`, a folder, or an events.jsonl)."""
    folder, file = find(run)
    if following:
        if as_json or as_markdown or explained:
            raise click.UsageError("--follow shows the events as they come: it goes with none of --json, --md and --explain")
        return _follow(folder, file)
    if cursor is not None:
        if not as_json or as_markdown or explained:
            raise click.UsageError("--cursor is for programs: it goes with --json, and with none of --md and --explain")
        return _page(folder, file, cursor)
    try:
        events = [] if store.is_blank(folder, file) else load_recording(folder, file)
    except JournalError as problem:
        raise click.UsageError(f"{run}: {problem}") from problem
    if as_json:
        click.echo(json.dumps(_object(events, folder), ensure_ascii=False))
    elif as_markdown:
        click.echo(markdown(events).encode(), nl=False)
    elif explained:
        click.echo(_explanation(events), nl=False)
    else:
        _replay(events)
        story = tell(events)
        if story.state != "ended" and store.answered(folder):
            click.echo("\nit has ended: `runbook cancel` cleaned its hosts up by what they had on record, and could not write it here")
        elif stale := store.stale(story, SystemClock().now(), folder):
            click.echo(_behind(story, stale, folder))
        elif story.header is not None and story.state == "running":
            click.echo(f"\nit goes on: `runbook wait {story.header.run}` waits for its answer, `runbook cancel {story.header.run}` ends it")
        if (folder / store.POSTS).exists():
            from runbook.cli.post_at_end import line, read_posts

            for row in read_posts(folder):
                click.echo(line(row))
        click.echo(f"\nfolder: {folder}")
    return EXIT_CODES["passed"]


def _follow(folder: Path, file: str) -> int:
    from runbook.cli.follow import follow

    seen = follow(folder, file, SystemClock())
    if seen.stale:
        click.echo(_behind(seen.story, seen.stale, folder))
    return EXIT_CODES["passed"]


def _behind(story: Story, stale: str, folder: Path) -> str:
    if story.header is None:
        return (
            f"lost: nobody works on it, and {recorded.no_beginning(folder)}; `runbook cancel {store.name_of(folder)}` cleans its hosts up"
        )
    run = story.header.run
    go_on = f"`runbook resume {run}` goes on with it, " if stale == "lost" else ""
    return f"{STALE[stale]}; {go_on}`runbook cancel {run}` makes sure and ends the run"


def _page(folder: Path, file: str, cursor: int) -> int:
    from runbook.render.cursor import page

    try:
        story = tell([] if store.is_blank(folder, file) else glance(folder, file))
        with (folder / file).open("rb") as lines:
            found = page(lines, cursor, file)
    except (JournalError, OSError) as problem:
        raise click.UsageError(f"{folder / file}: {problem}") from problem
    run = story.header.run if story.header else None
    where = {"run": run, "state": story.state, "stale": store.stale(story, SystemClock().now(), folder)}
    click.echo(json.dumps({**where, **found}, ensure_ascii=False))
    return EXIT_CODES["passed"]


def _object(events: list[AnyEvent], folder: Path) -> dict[str, object]:
    story = tell(events)
    answer = summary(events, str(folder), store.transcripts(folder))
    more = running(story) if story.state == "running" else {}
    if story.state != "ended" and store.answered(folder):
        return {**answer, "state": "ended", "verdict": store.answered(folder), "stale": None}
    return {**answer, **more, "stale": store.stale(story, SystemClock().now(), folder)}


def _explanation(events: list[AnyEvent]) -> str:
    from runbook.diagnose.judge import RULES
    from runbook.render.explain import explain

    rules = {rule.__name__: " ".join((rule.__doc__ or "").split("\n\n")[0].split()) for rule in RULES}
    return explain(events, rules, min(100, shutil.get_terminal_size((80, 24)).columns))


def _replay(events: list[AnyEvent]) -> None:
    """As it looked while it ran: in colour on a terminal, which also folds to its width; as plain lines elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from runbook.render.terminal import Terminal  # rich costs 70 ms

        terminal = Terminal(sys.stdout, colour=not os.environ.get("NO_COLOR"))
        for event in map(_without_itself, events):
            terminal.follow(event)
        return
    lines = Lines()
    for event in map(_without_itself, events):
        for line in lines.lines(event):
            click.echo(line)


def _without_itself(event: AnyEvent) -> AnyEvent:
    """The end, without the advice to do what was just done."""
    if not isinstance(event, (RunEnded, RunSuspended)):
        return event
    return msgspec.structs.replace(event, next=[line for line in event.next if not line.startswith("runbook show ")])
