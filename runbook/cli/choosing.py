"""Which steps a command line chooses: the tags and the step that it names must be there."""

from __future__ import annotations

from collections.abc import Sequence

import click

from runbook.cli.run_options import Choice
from runbook.engine.selection import starts, tags_of
from runbook.model.playbook import Playbook
from runbook.playbook.near import suggestion


def split(options: Sequence[str]) -> list[str]:
    """`--tags a,b --tags c` as words."""
    return [word for option in options for part in option.split(",") if (word := part.strip())]


def check_choice(playbook: Playbook, choice: Choice) -> None:
    """Raises click.UsageError for a tag or a step that is not there, and for questions that nobody can answer."""
    known = tags_of(playbook)
    for tag in (*split(choice.tags), *split(choice.skip_tags)):
        if tag not in known:
            raise click.UsageError(f"no step carries the tag `{tag}`; {suggestion(tag, known) or 'this playbook has none'}")
    if choice.start_at:
        _check_start(playbook, choice.start_at)
    if not choice.step:
        return
    if choice.detach or choice.wait_for is not None:
        raise click.UsageError("--step asks before each step, and a run that is left alone has nobody to ask: leave one of them out")
    from runbook.cli.prompt import at_terminal

    if not at_terminal():
        raise click.UsageError("--step asks before each step, and this is no terminal: use --tags or --start-at to choose steps")


def _check_start(playbook: Playbook, id: str) -> None:
    known = starts(playbook)
    if id not in known:
        hint = suggestion(id, [name for name, can in known.items() if can]) or "`runbook plan` shows the ids"
        raise click.UsageError(f"no step has the id `{id}`; {hint}")
    if not known[id]:
        raise click.UsageError(f"a run cannot start at `{id}`: it rescues or cleans up")
