"""Before a run touches a host marked `production` or `shared`: what others there would notice is confirmed, or nothing runs."""

from __future__ import annotations

import sys
from collections.abc import Container

import click

from runbook.model.diagnostic import Diagnostic, Span
from runbook.model.playbook import Playbook
from runbook.playbook.confirm import disturbances
from runbook.steps import TABLE


def unconfirmed(playbook: Playbook, *, yes: bool, left_out: Container[str] = ()) -> list[Diagnostic]:
    """What stands in the way, one diagnostic a step and host; none when it was confirmed. Asks only on a terminal."""
    found = disturbances(playbook, TABLE, left_out)
    if yes or not found:
        return []
    hint = "look at it with `runbook plan`, then give --yes"
    if sys.stdin.isatty() and sys.stderr.isatty():
        for one in found:
            click.echo(f"{one}", err=True)
        if click.confirm("go on?", err=True):
            return []
        hint = "it was not confirmed; nothing ran"
    return [Diagnostic(code="not-confirmed", summary=str(one), span=_place(playbook, one.step), hint=hint) for one in found]


def _place(playbook: Playbook, step: str) -> Span | None:
    from runbook.engine.runtime import walk

    return next((node.span for node in walk((*playbook.steps, *playbook.always)) if node.id == step), None)
