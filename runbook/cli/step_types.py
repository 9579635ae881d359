"""The step types that can be had, those of installed packages included; what cannot is said on stderr."""

from __future__ import annotations

from collections.abc import Iterable

import click

from runbook.model.step_type import BrokenStepType
from runbook.steps import TABLE, refused
from runbook.steps.base import Step


def usable(names: Iterable[str] | None = None) -> dict[str, type[Step]]:
    """Step types by name, all or these; a broken one is left out and named with its package, as is one with a name that is taken."""
    found: dict[str, type[Step]] = {}
    for name in TABLE if names is None else names:
        try:
            found[name] = TABLE[name]
        except BrokenStepType as broken:
            click.echo(f"{broken.summary}; {broken.hint}", err=True)
    for line in refused():
        click.echo(line, err=True)
    return found
