"""`run --reuse RUN`: the run whose servers and patches may be taken over, from its folder."""

from __future__ import annotations

from pathlib import Path

import click

from runbook.cli import perform, store
from runbook.engine.journal import Journal, repair_torn_line
from runbook.engine.lock import Held
from runbook.engine.redact import Mask
from runbook.engine.reuse import Earlier
from runbook.engine.state import fold
from runbook.hosts.base import RemoteError
from runbook.model.clock import SystemClock
from runbook.model.event import Event


def earlier(name: str) -> Earlier:
    """The run of this name (an id, its beginning, `last`, or a folder). A run that goes on, or a name without one, is a usage error."""
    folder = store.find_run(name)
    state = fold(store.read_run(folder))
    if state.header is None:
        raise click.UsageError(f"--reuse: {folder.name} has no beginning in its journal, so it is not known what it kept")
    if state.ended is None and state.suspended is None and store.is_alive(state.controller):
        raise click.UsageError(f"--reuse: {state.header.run} is still running: `runbook wait {state.header.run}`, or cancel it")
    if state.heirs and not state.owed:
        heir = list(state.heirs)[-1]
        raise click.UsageError(f"--reuse: what {state.header.run} kept is run {heir}'s now: `--reuse {heir}`")
    return Earlier(run=state.header.run, state=state, tell=lambda events: _tell(folder, events))


def _tell(folder: Path, events: list[Event]) -> None:
    """Append to its journal, when nobody else goes on with that run at this moment. Raises RemoteError busy, JournalError."""
    try:
        with store.hold(folder, perform.controller()):
            repair_torn_line(folder)
            journal = Journal(folder, SystemClock(), Mask({}), first=len(store.read_run(folder)))
            for event in events:
                journal.append(event)
            journal.close()
    except Held as held:
        raise RemoteError("busy", f"run {folder.name}: {held}", "try again when that has ended") from held
