"""`runbook validate`: check playbooks and profiles; touches no host."""

from __future__ import annotations

import json

import click

from runbook.cli.sources import check_file, our_files, source_texts

FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Replace a variable, or all those of a file.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="text on stderr; the others on stdout, for programs.  [default: text]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: as --format json.")
def command(files: tuple[str, ...], overrides: tuple[str, ...], form: str | None, as_json: bool) -> int:
    """Check playbooks and engine profiles without touching any host.

    FILE is a playbook, its name, an engine profile, or a folder: of that all playbooks and profiles in it and below.

    Reports every problem at once, each with its place. Warnings tell what an engine's profile already knows about a step, as a check
    that can never match. Exit code 0 when all files are valid, 2 otherwise; warnings do not change it.
    """
    from runbook.model.diagnostic import Severity
    from runbook.render.diagnostics import as_object, as_text, summary_line
    from runbook.render.findings import as_github, as_sarif

    if as_json and form not in (None, "json"):
        raise click.UsageError(f"`--json` is `--format json`, and `--format {form}` is asked for too: keep one")
    form = "json" if as_json else form or "text"
    wanted = our_files(files)
    unique = list(dict.fromkeys(problem for file in wanted for problem in check_file(file, overrides)))
    invalid = any(problem.severity is Severity.ERROR for problem in unique)
    if form == "text":
        if unique:
            click.echo(as_text(unique, source_texts(unique)), err=True)
        click.echo(summary_line(unique, len(wanted)), err=True)
    elif form == "github":
        click.echo(as_github(unique), nl=False)
    else:
        answer = as_sarif(unique) if form == "sarif" else as_object(unique, "invalid" if invalid else "passed")
        click.echo(json.dumps(answer, ensure_ascii=False))
    return 2 if invalid else 0
