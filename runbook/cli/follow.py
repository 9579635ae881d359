"""Following a run of another process, as it goes on. Reads the journal and nothing else, so it cannot disturb the run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import click

from runbook.cli import live, store
from runbook.engine.following import Tail
from runbook.engine.journal import JournalError
from runbook.model.clock import Clock
from runbook.model.event import AnyEvent
from runbook.render.story import Story

EVERY_S = 0.25
LOOK_EVERY_S = 5.0
"""Between two looks whether the run's controller still lives."""


class Seen(NamedTuple):
    """How far a run was followed. `stale` is as of `store.stale`; a run that has no closing event and is not stale goes on."""

    story: Story
    stale: str | None


def follow(folder: Path, file: str, clock: Clock, *, err: bool = False, for_s: float = float("inf"), from_start: bool = True) -> Seen:
    """Show a run until it ends, is suspended, or has lost its controller, at most `for_s`: on stdout, or where a run shows itself.

    `from_start`: what has been before is shown too, else only where the run stands. Ctrl-C ends the following, not the run.
    """
    tail, story, never = Tail(folder, file), Story(), threading.Event()
    look_at = clock.monotonic()
    deadline = look_at + for_s
    with live.follower(clock, quiet=False, err=err) as follower:
        if not from_start:
            follower.catch_up(_more(tail, story))
        while True:
            events = _more(tail, story)
            _show(follower, events)
            if not events and story.closing is not None:  # what stands behind a suspension may be its cancel
                _tell_unreadable(tail, folder)
                return Seen(story, store.stale(story, clock.now(), folder))
            now = clock.monotonic()
            if not events and now >= look_at:
                look_at = now + LOOK_EVERY_S
                stale = store.stale(story, clock.now(), folder)
                if stale is not None and not (events := _more(tail, story)):  # its last words may have come before it went
                    return Seen(story, stale)
                _show(follower, events)
            if now >= deadline:
                return Seen(story, None)
            if not events:
                clock.wait(never, min(EVERY_S, deadline - now))


def _show(follower: live.Follower, events: list[AnyEvent]) -> None:
    for event in events:
        follower.follow(event)


def _more(tail: Tail, story: Story) -> list[AnyEvent]:
    try:
        events = tail.more()
    except JournalError as problem:
        raise click.UsageError(str(problem)) from problem
    for event in events:
        story.apply(event)
    if tail.unreadable and not story.last_t:
        raise click.UsageError(f"{tail.path}: no line of it is an event of a run: name the events.jsonl of a run")
    return events


def _tell_unreadable(tail: Tail, folder: Path) -> None:
    if tail.unreadable:
        click.echo(f"note: {tail.unreadable} lines of the journal were left out; `runbook show {folder.name}` says which", err=True)
