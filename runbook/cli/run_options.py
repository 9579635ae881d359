"""What `runbook run` can be told: its options, and the struct that they become."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from runbook.cli.params import DURATION

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One command line of `runbook run`, as plain data: a worker can be given the same."""

    playbook: str
    roles: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at: str | None = None
    step: bool = False
    no_suspend: bool = False
    keep: bool = False
    reuse: str | None = None
    no_post: bool = False
    yes: bool = False
    wait_lease: float = 0.0
    wait_for: float | None = None
    detach: bool = False
    as_json: bool = False
    out: Path | None = None


OPTIONS: tuple[Wrap, ...] = (
    click.option("-H", "--host", "roles", multiple=True, metavar="ROLE=TARGET", help="Run a role on another target."),
    click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Override a variable, or all of a YAML file."),
    click.option("--check", is_flag=True, help="Look, change nothing, say what would be done."),
    click.option("--diff", is_flag=True, help="Show what changes in a file, with --check what would change."),
    click.option("--tags", multiple=True, metavar="TAG,…", help="Run only the steps that carry one of these tags."),
    click.option("--skip-tags", multiple=True, metavar="TAG,…", help="Leave out the steps that carry one of these tags."),
    click.option("--start-at", metavar="STEP", help="Leave out the steps before this one."),
    click.option("--step", is_flag=True, help="Ask before each step: run, skip, or quit."),
    click.option("--no-suspend", is_flag=True, help="Clean up also when a wait ends slow or undecided."),
    click.option("--keep", is_flag=True, help="Leave servers and patches at the end, until `suspend_for` is over; `cancel` ends them."),
    click.option("--reuse", metavar="RUN", help="Take over what RUN kept, where this run would make the same."),
    click.option("--no-post", is_flag=True, help="Do not post to the tickets that the playbook names."),
    click.option("--yes", is_flag=True, help="Confirm what others notice on hosts marked `production` or `shared`."),
    click.option("--wait-lease", type=DURATION, default=0.0, help="Wait this long for a host that another run has [refused at once]."),
    click.option("--wait-for", type=DURATION, help="Leave the run alone and follow it for this long; exit 75 when it still goes on."),
    click.option("--detach", is_flag=True, help="Leave the run alone and print its id."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout."),
    click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of this run [a new one in the state folder]."),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options, in this order in its help."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
