"""`runbook list`: the playbooks that can be run by name."""

from __future__ import annotations

from typing import Any

import click

from runbook.cli.sources import SUFFIXES, libraries, read_bounded


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list on stdout.")
def command(as_json: bool) -> int:
    """List the playbooks in ./playbooks and those that come with runbook."""
    rows = found()
    if as_json:
        import json

        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    if not rows:
        click.echo("no playbooks in ./playbooks, and none came with runbook", err=True)
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        click.echo(f"{row['id']:<{width}}  {row['name']}")
        if row["description"]:
            click.echo(f"{'':<{width}}  {row['description']}")
        click.echo(f"{'':<{width}}  {row['file']}")
    return 0


def found() -> list[dict[str, Any]]:
    """One row per playbook: id (what to type), name, description, file. A folder earlier in the search hides later ones."""
    rows: dict[str, dict[str, Any]] = {}
    for folder in libraries():
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.suffix in SUFFIXES and path.is_file() and path.stem not in rows:
                rows[path.stem] = {"id": path.stem, **_headline(str(path)), "file": str(path)}
    return list(rows.values())


def _headline(file: str) -> dict[str, str]:
    from runbook.lang.yaml_loader import load

    document, problems = load(read_bounded(file), file)
    if document is None or not isinstance(document.data, dict):
        reason = f": {problems[0].summary}" if problems else ""
        return {"name": f"(not a valid playbook{reason})", "description": ""}
    return {key: " ".join(str(document.data.get(key) or "").split()) for key in ("name", "description")}
