"""`runbook plan`: the exact remote actions of a playbook, as far as they are known before it runs. Contacts nothing."""

from __future__ import annotations

import json
from typing import Any

import click

from runbook.cli.sources import load_with, read_bounded, read_roles, source_texts


@click.command()
@click.argument("playbook")
@click.option("-H", "roles", multiple=True, metavar="ROLE=TARGET", help="Where a role is; `,` or a second -H for several targets.")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Replace a variable, or all those of a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: the lines, or what is wrong.")
def command(playbook: str, roles: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> int:
    """Show what a playbook would do on each host; contact nothing, do nothing.

    Values that only a run can know stand as ${{ ... }}.
    """
    from runbook.playbook.overrides import apply_overrides, read_overrides
    from runbook.playbook.plan import Planner
    from runbook.render.diagnostics import as_object, as_text
    from runbook.steps import TABLE

    given, found = read_overrides(overrides, read_bounded)
    checked, diagnostics, _ = load_with(playbook, given, read_roles(roles))
    diagnostics = found + diagnostics
    if diagnostics:
        click.echo(as_text(diagnostics, source_texts(diagnostics)), err=True)
    if checked is None or found:
        if as_json:
            click.echo(json.dumps(as_object(diagnostics), ensure_ascii=False))
        return 2
    values: dict[str, Any] = apply_overrides({**dict.fromkeys(checked.inputs), **checked.vars}, given, checked.inputs)[0]
    lines = Planner(checked, TABLE, values).lines()
    hosts = {role: [one.target for one in targets] for role, targets in checked.hosts.items()}
    told = {"playbook": checked.file, "hosts": hosts, "lines": lines}
    click.echo(json.dumps(told, ensure_ascii=False) if as_json else "\n".join(lines))
    return 0
