"""Runs a playbook on this machine with the real steps: a helper, a keeper, processes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from runbook.cli.profiles import profiles
from runbook.engine.execute import execute
from runbook.engine.journal import Journal
from runbook.engine.redact import Mask
from runbook.engine.runtime import Options, Runtime
from runbook.hosts.local import connect_local
from runbook.model.clock import SystemClock
from runbook.playbook.build import load_playbook
from runbook.steps import TABLE


def run_here(text: str, folder: Path, *, check: bool = False) -> tuple[Any, list[Any]]:
    """(last event, all events) of a playbook's text. Its run has an id of its own: a run ends whatever on this machine carries its mark."""
    known = profiles()
    playbook, problems = load_playbook(text.encode(), "t.yaml", table=TABLE, profiles=known.names())
    assert playbook is not None, problems
    clock = SystemClock()
    journal = Journal(folder, clock, Mask({}))
    events: list[Any] = []
    journal.follow(events.append)
    runtime = Runtime(
        playbook=playbook,
        options=Options(run=f"r{secrets.token_hex(6)}", dir=str(folder), check=check, no_suspend=True),
        journal=journal,
        table=TABLE,
        profile=known.read,
        connect=lambda target, cancel, note: connect_local(),
        secrets={},
        environ={},
        clock=clock,
    )
    return execute(runtime, lambda *_: None, {"pid": 1}), events
