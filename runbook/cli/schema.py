"""`runbook schema`: the JSON Schemas of playbooks and engine profiles, made from their types."""

from __future__ import annotations

import click


@click.command()
@click.option("--profile", is_flag=True, help="The schema of an engine profile instead.")
@click.option("--write", is_flag=True, hidden=True, help="Write schemas/ and docs/reference/ of this source tree.")
def command(profile: bool, write: bool) -> int:
    """Print the JSON Schema (2020-12) of a playbook, or of an engine profile. Step types of installed packages are in it.

    Editors use it with a first line such as: # yaml-language-server: $schema=playbook.schema.json
    """
    from runbook.cli import generate

    if not write:
        from runbook.cli.step_types import usable

        click.echo(generate.profile_text() if profile else generate.schema_text(usable()), nl=False)
        return 0
    for path in generate.write_all():
        click.echo(f"wrote {path}", err=True)
    return 0
