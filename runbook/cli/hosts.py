"""`runbook hosts`: what a name stands for; contacts no host."""

from __future__ import annotations

import json
from typing import Any

import click

from runbook.cli.sources import read_whole_inventory
from runbook.hosts.base import ResolveFailed
from runbook.hosts.inventory import Entry, Inventory
from runbook.model.playbook import Target

MOST_JUMPS = 10


@click.command()
@click.argument("name", required=False)
@click.option("--targets", is_flag=True, help="Only the names, joined by commas: for `-H ROLE=$(runbook hosts GROUP --targets)`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(name: str | None, targets: bool, as_json: bool) -> int:
    """List the hosts and groups of hosts.yaml, or show what NAME resolves to.

    NAME is a host or group of hosts.yaml, an ssh alias or address, or `slurm:JOB`, the nodes of that job. Nothing is contacted but
    ssh's own configuration (`ssh -G`), and Slurm for a job. Exit code 2 for what resolves to nothing.
    """
    inventory, wrong = read_whole_inventory()
    if wrong:
        from runbook.cli.sources import source_texts
        from runbook.render.diagnostics import as_object, as_text

        click.echo(as_text(wrong, source_texts(wrong)), err=True, nl=False)
        if inventory is None and as_json:
            click.echo(json.dumps(as_object(wrong, "invalid"), ensure_ascii=False))
    if inventory is None:
        return 2
    if name is not None and (close := _meant(inventory, name)):
        click.echo(f"`{name}` is not in hosts.yaml, so it is taken as an ssh alias or address; did you mean `{close}`?", err=True)
    try:
        names = _names(inventory, name)
        rows = [_row(inventory, one, deep=name is not None and not targets) | _job_step(name, one) for one in names]
    except ResolveFailed as problem:
        raise click.UsageError(f"{problem.summary}; {problem.hint}" if problem.hint else problem.summary) from None
    if targets:
        click.echo(",".join(names))
    elif as_json:
        click.echo(json.dumps({"name": name, "hosts": rows, "groups": inventory.groups}, ensure_ascii=False))
    elif name is None:
        _list(inventory, rows)
    else:
        click.echo("\n\n".join(_lines(row) for row in rows))
    return 0


def _meant(inventory: Inventory, name: str) -> str | None:
    """The host or group whose name was probably misspelt."""
    from runbook.playbook.near import nearest

    known = {*inventory.hosts, *inventory.groups}
    return nearest(name, known, 0.75) if name not in known and name not in ("local", "lab") else None


def _names(inventory: Inventory, name: str | None) -> list[str]:
    from runbook.hosts.inventory_sources import slurm

    if name is None:
        return sorted(inventory.hosts)
    nodes = slurm(name)
    return nodes if nodes is not None else inventory.groups.get(name, [name])


def _job_step(name: str | None, node: str) -> dict[str, Any]:
    """What enters the node from here where ssh does not: a step of the job, for `via:`."""
    job = (name or "").partition("slurm:")[2]
    return {"job_step": f"srun --jobid={job} --overlap --quiet --nodelist={node}"} if job else {}


def _row(inventory: Inventory, name: str, deep: bool) -> dict[str, Any]:
    """What is known of one host; with `deep` what ssh makes of it as well."""
    entry = inventory.hosts.get(name, Entry())
    kind = next((text for text in (name, entry.host) if text in ("local", "lab")), "ssh")
    row: dict[str, Any] = {"host": name, "kind": kind, "groups": [key for key, names in inventory.groups.items() if name in names]}
    row |= {"labels": entry.labels, "vars": entry.vars, "production": entry.production, "shared": entry.shared}
    row |= {"python": entry.python or None, "gpus": entry.gpus, "in_hosts_yaml": name in inventory.hosts}
    if kind == "lab" and not deep:
        return row
    try:
        place = inventory.place(Target(target=name))
    except ResolveFailed as problem:
        return {**row, "problem": problem.summary, "hint": problem.hint}
    row |= {"via": list(place.via), "ssh": place.ssh or None}
    return {**row, **_settings(place.ssh)} if deep and kind == "ssh" else row


def _settings(target: str) -> dict[str, Any]:
    import os

    from runbook.hosts.ssh_config import resolve

    config = os.environ.get("RUNBOOK_SSH_CONFIG", "")
    found = resolve(target, config)
    way, last = [found.host], found
    while last.proxy_jump and len(way) < MOST_JUMPS and way.count(way[-1]) == 1:
        last = resolve(last.proxy_jump[0], config)
        way.append(last.host)
    round_ = [f"the jump hosts go round: {' -> '.join(way)}; correct `ProxyJump`"] if way.count(way[-1]) > 1 else []
    return {
        "address": found.host,
        "port": found.port,
        "user": found.user,
        "jump": list(found.proxy_jump) or None,
        "proxy_command": found.proxy_command or None,
        "keys": list(found.identity_files),
        "notes": [*found.notes, *round_],
    }


def _lines(row: dict[str, Any]) -> str:
    """A host, one line a key; what is not set is left out."""
    named = "hosts.yaml" if row["in_hosts_yaml"] else "not in hosts.yaml" + (": an ssh alias or address" if row["kind"] == "ssh" else "")
    lines = [f"{row['host']}  ({named})"]
    for key, value in row.items():
        if key in ("host", "in_hosts_yaml") or value in (None, "", [], {}, False):
            continue
        text = " ".join(map(str, value)) if isinstance(value, list) else value
        lines.append(f"  {key:<13} {_pairs(text) if isinstance(text, dict) else 'yes' if text is True else text}")
    return "\n".join(lines)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}" for key, value in values.items()
    )


def _list(inventory: Inventory, rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("no host in a hosts.yaml here or in ~/.config/runbook; every ssh alias is a target, and `local` and `lab`", err=True)
    width = max((len(row["host"]) for row in rows), default=0)
    for row in rows:
        marks = [mark for mark in ("production", "shared") if row[mark]]
        more = [row.get("ssh") or row["kind"], *(f"via {' '.join(row['via'])}" for _ in range(1) if row.get("via")), *marks]
        more += [f"[{', '.join(row['groups'])}]"] if row["groups"] else []
        more += [_pairs(row["labels"])] if row["labels"] else []
        click.echo(f"{row['host']:<{width}}  {'  '.join(more)}")
