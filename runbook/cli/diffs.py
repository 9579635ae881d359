"""`run --diff`: each change of a file as it is made, or would be."""

from __future__ import annotations

import click

from runbook.model.event import AnyEvent, StepEnded
from runbook.render.inert import one_line

LONGEST = 400
"""Lines of one change that are shown; all of them are in the journal."""


def show_diff(event: AnyEvent) -> None:
    """Print the change that a step tells of, below its line."""
    diff = event.result.get("diff") if isinstance(event, StepEnded) else None
    if not isinstance(diff, str) or not diff:
        return
    lines = diff.splitlines()
    for line in lines[:LONGEST]:
        click.echo(f"  {one_line(line)}", err=True)
    if len(lines) > LONGEST:
        click.echo(f"  … {len(lines) - LONGEST} more lines", err=True)
