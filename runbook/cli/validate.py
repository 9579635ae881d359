"""`runbook validate`: check playbooks and profiles; touches no host."""

from __future__ import annotations

import click

from runbook.cli.sources import check_file, source_texts


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Replace a variable, or all those of a file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> int:
    """Check playbooks and engine profiles without touching any host.

    Reports every problem at once, each with its place. Warnings tell what an engine's profile already knows about a step, as a check
    that can never match. Exit code 0 when all files are valid, 2 otherwise; warnings do not change it.
    """
    from runbook.model.diagnostic import Severity
    from runbook.render.diagnostics import as_object, as_text, summary_line

    diagnostics = [problem for file in files for problem in check_file(file, overrides)]
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
