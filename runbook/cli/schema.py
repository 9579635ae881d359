"""`runbook schema`: the JSON Schema of a playbook, made from the step types."""

from __future__ import annotations

import click


@click.command()
@click.option("--write", is_flag=True, hidden=True, help="Write schemas/ and docs/reference/ of this source tree.")
def command(write: bool) -> int:
    """Print the JSON Schema (2020-12) of a playbook.

    Editors use it with a first line such as: # yaml-language-server: $schema=playbook.schema.json
    """
    from runbook.cli import generate

    if not write:
        click.echo(generate.schema_text(), nl=False)
        return 0
    for path in generate.write_all():
        click.echo(f"wrote {path}", err=True)
    return 0
