"""`runbook show --follow`: a run in another terminal, as it goes on. Reads the journal and nothing else, so it cannot disturb the run."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from runbook.cli import live, store
from runbook.engine.following import Tail
from runbook.engine.journal import JournalError
from runbook.model.clock import Clock
from runbook.render.story import Story

EVERY_S = 0.25
LOOK_EVERY_S = 5.0
"""Between two looks whether the run's controller still lives."""


def follow(folder: Path, file: str, clock: Clock) -> str | None:
    """Show a run until it ends, is suspended, or has lost its controller; answers how its journal is behind, as `store.stale`.

    Ctrl-C ends the following, not the run.
    """
    tail, story, never = Tail(folder, file), Story(), threading.Event()
    looked = clock.monotonic()
    with live.follower(clock, quiet=False, err=False) as follower:
        while True:
            try:
                events = tail.more()
            except JournalError as problem:
                raise click.UsageError(str(problem)) from problem
            for event in events:
                story.apply(event)
                follower.follow(event)
            if events:
                continue  # what stands behind a suspension may be its cancel
            if story.closing is not None:
                _tell_unreadable(tail, folder)
                return store.stale(story, clock.now())
            if clock.monotonic() - looked >= LOOK_EVERY_S:
                looked = clock.monotonic()
                if (stale := store.stale(story, clock.now())) is not None:
                    return stale
            clock.wait(never, EVERY_S)


def _tell_unreadable(tail: Tail, folder: Path) -> None:
    if tail.unreadable:
        click.echo(f"note: {tail.unreadable} lines of the journal were left out; `runbook show {folder.name}` says which", err=True)
