"""Which steps a command line chooses: the tags and the step that it names must be there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from runbook.cli.run_options import Choice
from runbook.engine.selection import main_steps, starts, tags_of, unselected
from runbook.model.playbook import Playbook
from runbook.playbook.near import MOST_NAMED, suggestion


def split(options: Sequence[str]) -> list[str]:
    """`--tags a,b --tags c` as words."""
    return [word for option in options for part in option.split(",") if (word := part.strip())]


def left_out(playbook: Playbook, choice: Choice) -> dict[str, str]:
    """Each step that the command line leaves out, and why.

    Raises click.UsageError for a tag or a step that is not there, for a choice that leaves nothing to run, which nothing could be
    said of, and for questions that nobody can answer.
    """
    for option, values in {"--tags": choice.tags, "--skip-tags": choice.skip_tags}.items():
        _check_tags(playbook, option, values)
    if choice.start_at is not None:
        _check_start(playbook, choice.start_at)
    reasons = unselected(playbook, split(choice.tags), split(choice.skip_tags), choice.start_at or "")
    main = [step.id for node in playbook.steps for step in main_steps(node)]
    if main and all(id in reasons for id in main):
        raise click.UsageError(_nothing(playbook, choice))
    if choice.step:
        _check_asking(choice)
    return reasons


def _check_tags(playbook: Playbook, option: str, values: Sequence[str]) -> None:
    known = tags_of(playbook)
    there = f"the tags of this playbook are {_listed(known)}" if known else "no step of this playbook carries a tag"
    for value in values:
        words = split([value])
        if not words:
            raise click.UsageError(f"`{option} '{value}'` names no tag; {there}")
        for tag in words:
            if tag not in known:
                hint = suggestion(tag, known)
                close = f"{hint} " if hint and hint.startswith("did") else ""
                raise click.UsageError(f"no step carries the tag `{tag}`; {close}{there}")


def _nothing(playbook: Playbook, choice: Choice) -> str:
    """What is wrong with a choice that leaves no step of the main part."""
    asked = [f"--tags {','.join(split(choice.tags))}"] if choice.tags else []
    asked += [f"--skip-tags {','.join(split(choice.skip_tags))}"] if choice.skip_tags else []
    asked += [f"--start-at {choice.start_at}"] if choice.start_at else []
    main = tags_of(playbook, main_only=True)
    there = f"the tags of its steps are {_listed(main)}" if main else "none of its steps carries a tag"
    return f"`{' '.join(asked)}` leaves no step to run, so there would be nothing to judge; {there}"


def _listed(tags: Collection[str]) -> str:
    shown = sorted(tags)[:MOST_NAMED]
    return ", ".join(f"`{tag}`" for tag in shown) + (f" and {len(tags) - len(shown)} more" if len(tags) > len(shown) else "")


def _check_asking(choice: Choice) -> None:
    if choice.detach or choice.wait_for is not None:
        raise click.UsageError("--step asks before each step, and a run that is left alone has nobody to ask: leave one of them out")
    from runbook.cli.prompt import at_terminal

    if not at_terminal():
        raise click.UsageError("--step asks before each step, and this is no terminal: use --tags or --start-at to choose steps")


def _check_start(playbook: Playbook, id: str) -> None:
    known = starts(playbook)
    if not id:
        raise click.UsageError("`--start-at ''` names no step; `runbook plan` shows the ids")
    if id not in known:
        hint = suggestion(id, [name for name, can in known.items() if can]) or "`runbook plan` shows the ids"
        raise click.UsageError(f"no step has the id `{id}`; {hint}")
    if not known[id]:
        raise click.UsageError(f"a run cannot start at `{id}`: it rescues or cleans up")
