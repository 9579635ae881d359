"""The tickets of a playbook's `post:`: each gets the transcript when the run is over. Whatever comes of it, the verdict stands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli import store
from runbook.cli.post import Posting, from_environment
from runbook.engine.journal import EVENTS, JournalError
from runbook.engine.recording import load_recording
from runbook.model.answer import PostRow
from runbook.tickets import Tracker, is_trusted, tracker_for
from runbook.tickets.base import Misused, TicketError


def post_all(folder: Path, tickets: Sequence[str], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Post to each ticket; answers one row for each, which also stand in the folder and, in words, on stderr."""
    rows = [_one(folder, ticket, environ) for ticket in tickets]
    for row in rows:
        click.echo(line(row), err=True)
    plain = [msgspec.to_builtins(row) for row in rows]
    try:
        (folder / store.POSTS).write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        click.echo(f"note: {store.POSTS} was not written: {problem.strerror}", err=True)
    return plain


def line(row: PostRow) -> str:
    """A row for people."""
    if row.action == "failed":
        return f"not posted: {row.ticket}: {row.error}" + (f" (hint: {row.hint})" if row.hint else "")
    return f"posted ({row.action}): {row.url or row.ticket}"


def read_posts(folder: Path) -> list[PostRow]:
    """What came of a run's tickets; none when it had none, or the file is no longer what it was."""
    try:
        return msgspec.json.decode((folder / store.POSTS).read_bytes(), type=list[PostRow])
    except (OSError, msgspec.DecodeError):
        return []


def _one(folder: Path, ticket: str, environ: Mapping[str, str]) -> PostRow:
    posting = None
    try:
        posting = Posting(folder, EVENTS, load_recording(folder), None, False)
        done = posting.deliver(_tracker(ticket, environ))
        return PostRow(ticket=ticket, action=done.action, url=posting.mask.text(done.comment.url))  # type: ignore[arg-type]
    except TicketError as problem:
        summary, hint = problem.summary, problem.hint
    except (JournalError, OSError) as problem:
        summary, hint = str(problem), ""
    except KeyboardInterrupt:
        summary, hint = "interrupted", f"runbook post {folder.name} {ticket}"
    except Exception as bug:  # the run is over and its verdict known: no fault in here may take it away
        summary, hint = f"{type(bug).__name__}: {bug}", f"try it by hand: runbook post {folder.name} {ticket}"
    mask = posting.mask.text if posting else str
    return PostRow(ticket=mask(ticket), action="failed", error=mask(summary), hint=mask(hint))


def _tracker(ticket: str, environ: Mapping[str, str]) -> Tracker:
    """The ticket. An address in the environment is its owner's; one in a file may only name a host that the environment names too."""
    found = tracker_for(from_environment(ticket), environ)
    if not ticket.startswith("env:") and not is_trusted(found, environ):
        variables = getattr(found, "name", "tracker")
        raise Misused(
            f"the playbook names a {variables} at {getattr(found, 'host', found.base)}, and no variable of the environment names this host",
            "set the variable of its host (docs/reference/trackers.md) when your token may go there, or post by hand",
        )
    return found
