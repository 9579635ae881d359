"""`runbook validate`: check playbooks; touches no host."""

from __future__ import annotations

import click

from runbook.cli.sources import load, source_texts


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="PLAYBOOK...")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Replace a variable, or all those of a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> int:
    """Check playbooks without touching any host.

    Reports every problem at once, each with its place. Exit code 0 when all are valid, 2 otherwise.
    """
    from runbook.model.diagnostic import Severity
    from runbook.render.diagnostics import as_object, as_text, summary_line

    diagnostics = [problem for file in files for problem in load(file, overrides)[1]]
    unique = list(dict.fromkeys(diagnostics))
    invalid = any(problem.severity is Severity.ERROR for problem in unique)
    if as_json:
        import json

        click.echo(json.dumps(as_object(unique, "invalid" if invalid else "passed"), ensure_ascii=False))
        return 2 if invalid else 0
    if unique:
        click.echo(as_text(unique, source_texts(unique)), err=True)
    click.echo(summary_line(unique, len(files)), err=True)
    return 2 if invalid else 0
