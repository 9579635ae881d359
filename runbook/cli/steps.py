"""`runbook steps`: the step types, or one of them in full."""

from __future__ import annotations

import click


@click.command()
@click.argument("type", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def command(type: str | None, as_json: bool) -> int:
    """List the step types, those of installed packages too; with TYPE its keys, its results and an example."""
    from runbook.cli.step_types import usable
    from runbook.playbook.near import suggestion
    from runbook.playbook.reference import describe
    from runbook.steps import TABLE

    if type is not None and type not in TABLE:
        hint = suggestion(type, TABLE) or "`runbook steps` lists them"
        raise click.BadParameter(f"no step type is called `{type}`; {hint}", param_hint="TYPE")
    pages = [describe(step) for step in usable([type] if type else None).values()]
    if not pages:
        return 2
    if as_json:
        click.echo(_json(pages, single=type is not None))
        return 0
    if type is None:
        width = max(len(page.type) for page in pages)
        click.echo("\n".join(f"{page.type:<{width}}  {page.summary}" for page in pages))
        return 0
    click.echo(_page(pages[0]))
    return 0


def _json(pages: list, single: bool) -> str:
    import json

    rows = [{**page._asdict(), "keys": [key._asdict() for key in page.keys]} for page in pages]
    return json.dumps(rows[0] if single else rows, ensure_ascii=False, indent=2)


def _page(page) -> str:  # type: ignore[no-untyped-def]
    from runbook.playbook.reference import default_text

    lines = [f"{page.type}: {page.summary}"]
    if page.text:
        lines += ["", *(click.wrap_text(part, width=100) for part in page.text.split("\n\n"))]
    lines += [
        "",
        f"time box {page.timeout}" + (f"; a value that is no mapping stands for `{page.shorthand}`" if page.shorthand else ""),
        "",
        "keys",
    ]
    width = max((len(key.path) for key in page.keys), default=0)
    for key in page.keys:
        default = default_text(key)
        note = " (required)" if key.required else f" [{default}]" if default else ""
        lines.append(f"  {key.path:<{width}}  {key.type}{note}" + (f": {key.description}" if key.description else ""))
    if not page.keys:
        lines.append("  free: every name is a variable")
    lines += ["", f"results, as steps.<id>.<name> (besides {', '.join(('status', 'verdict', 'seconds', 'host', 'reason', 'diagnosis'))})"]
    width = max((len(name) for name in page.results), default=0)
    lines += [f"  {name:<{width}}  {text}" for name, text in page.results.items()]
    lines += ["", "example", *(f"  {line}" for line in page.example.splitlines())]
    return "\n".join(lines)
