"""The end of a run: the transcripts, the answer, the posts. Loaded while the first host is being reached, which takes longer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from runbook.cli import report, store
from runbook.engine import history
from runbook.engine.journal import JournalError, load_events
from runbook.model.event import AnyEvent, RunEnded, RunSuspended
from runbook.render.html import html
from runbook.render.markdown import markdown
from runbook.render.summary import bounded, cut, summary


def finish(folder: Path, as_json: bool, tickets: Sequence[str] = (), ended: RunEnded | RunSuspended | None = None) -> int:
    """Write the transcripts and post them, then the answer; print it or where they are; answer the exit code.

    `ended`: the end, where a full disk may have kept it out of the journal.
    """
    try:
        events = load_events(folder)
    except JournalError as problem:
        if ended is None:
            raise click.UsageError(str(problem)) from problem
        click.echo(f"note: {problem}: only the end is told", err=True)
        events = []
    if ended is not None and not any(isinstance(event, type(ended)) for event in events[-1:]):
        events.append(ended)
    write(folder, events)
    answer = summary(events, str(folder), store.transcripts(folder))
    if tickets:
        from runbook.cli.post_at_end import post_all

        answer = bounded(cut({**answer, "posts": post_all(folder, tickets, os.environ)}))
    text = json.dumps(answer, ensure_ascii=False)
    store.save_answer(folder, text)
    page = store.transcripts(folder)["html"]
    click.echo(text if as_json else f"transcript: {page or 'it was not written'}")
    return int(answer["exit_code"])


def write(folder: Path, events: list[AnyEvent]) -> None:
    """Write the transcripts. One that cannot be written is a note, never a failed run: the journal gives it again."""
    for name, render in (("transcript.md", markdown), ("transcript.html", html)):
        try:
            (folder / name).write_text(render(events), encoding="utf-8")
        except OSError as problem:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
            click.echo(f"note: {name} was not written: {problem.strerror}; `runbook report` makes it from the journal", err=True)
    history.keep(folder, events)
    report.at_the_end(folder, events, os.environ)
