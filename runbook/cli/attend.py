"""Waiting for a run of another process: its live lines, then its own answer and exit code; or where it stands."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import store
from runbook.cli.follow import Seen, follow
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.recording import load_recording
from runbook.model.answer import StandsAt
from runbook.model.clock import Clock
from runbook.model.verdict import EXIT_CODES, EXIT_STILL_RUNNING
from runbook.render.story import Story
from runbook.render.story import tell as story_of
from runbook.render.summary import cut, running, summary

AGAIN = "45s"
"""How long the next `wait` should last: many a shell of an agent ends a command after a minute."""
EXIT_LOST = EXIT_CODES["undecided"]
FINISHING_S = 120.0
"""A run that has ended writes its transcripts and posts them; longer than this that is not waited for."""
EVERY_S = 0.1
LOST = "its controller has died; the keeper on the host stops its servers and restores its files when their time is over"


def attend(folder: Path, clock: Clock, *, as_json: bool, for_s: float = float("inf"), from_start: bool = False) -> int:
    """Follow a run until it has an answer, at most `for_s`; print it and answer the exit code: the run's own, 75, or 9 when it is lost.

    Ctrl-C stops the following and says that the run goes on.
    """
    try:
        return tell(followed(folder, clock, for_s=for_s, from_start=from_start), folder, as_json)
    except KeyboardInterrupt:
        return let_go(folder, as_json)


def followed(folder: Path, clock: Clock, *, for_s: float, from_start: bool = False) -> Seen:
    """Show a run until it has an answer, with its files, at most `for_s`."""
    deadline = clock.monotonic() + for_s
    seen = follow(folder, EVENTS, clock, err=True, for_s=for_s, from_start=from_start)
    if seen.story.closing is not None:
        _until_finished(folder, seen.story, clock, min(deadline, clock.monotonic() + FINISHING_S))
    return seen


def tell(seen: Seen, folder: Path, as_json: bool) -> int:
    """Print the answer, or where the run stands."""
    if seen.story.closing is None:
        return tell_standing(seen.story, folder, as_json, lost=seen.stale == "lost")
    return tell_answer(folder, as_json)


def let_go(folder: Path, as_json: bool) -> int:
    """After Ctrl-C: say that only the following has ended."""
    story = story_of(events_of(folder))
    if story.closing is None:
        click.echo("no longer followed; the run itself is left alone", err=True)
        tell_standing(story, folder, as_json, lost=False)
    return EXIT_CODES["interrupted"]


def _until_finished(folder: Path, story: Story, clock: Clock, deadline: float) -> None:
    """Wait for what a controller does after the last event."""
    never = threading.Event()
    while not (folder / store.ANSWER).exists() and store.is_alive(story.controller) and clock.monotonic() < deadline:
        clock.wait(never, EVERY_S)


def tell_answer(folder: Path, as_json: bool) -> int:
    """Print what `run` itself has printed; answer its exit code."""
    try:
        answer: dict[str, Any] = json.loads((folder / store.ANSWER).read_bytes())
    except (OSError, ValueError):  # its controller died after the last event, or it is of a version without this file
        answer = summary(events_of(folder), str(folder), store.transcripts(folder))
    click.echo(json.dumps(answer, ensure_ascii=False) if as_json else f"transcript: {folder / 'transcript.html'}")
    return int(answer["exit_code"])


def tell_standing(story: Story, folder: Path, as_json: bool, *, lost: bool) -> int:
    """Print where a run stands that has no verdict; answer 75, or 9 when nobody works on it."""
    run = story.header.run if story.header else store.name_of(folder)
    resume = [f"runbook resume {run}"] if story.header else []  # without a beginning there is nothing to go on from
    next = [*resume, f"runbook cancel {run}"] if lost else [f"runbook wait {run} --for {AGAIN}"]
    stands = StandsAt(run=run, state="lost" if lost else "running", next=next, **running(story))
    if as_json:
        click.echo(json.dumps(cut(msgspec.to_builtins(stands)), ensure_ascii=False))
    else:
        at = ": ".join(filter(None, [stands.step and f"step `{stands.step}`", stands.phase, stands.moved]))
        click.echo(f"{run} {'is lost: ' + LOST if lost else 'goes on'}" + (f"; {at}" if at else ""))
        for command in next:
            click.echo(f"next: {command}")
    return EXIT_LOST if lost else EXIT_STILL_RUNNING


def tell_begun(story: Story, folder: Path, as_json: bool) -> int:
    """Print the id of a run that was left alone, and how to come back to it; on stderr where stdout takes nothing, since it goes on."""
    run = story.header.run if story.header else folder.name
    try:
        if as_json:
            tell_standing(story, folder, as_json, lost=False)
        else:
            click.echo(run)
    except OSError:
        click.echo(f"run {run} goes on\nnext: runbook wait {run} --for {AGAIN}", err=True)
        raise
    if not as_json:
        click.echo(f"next: runbook wait {run} --for {AGAIN}", err=True)
    return EXIT_CODES["passed"]


def events_of(folder: Path) -> list[Any]:
    """What a run's journal says so far. One that cannot be read is a usage error."""
    try:
        return list(load_recording(folder))
    except JournalError as problem:
        raise click.UsageError(f"{folder.name}: {problem}") from problem
