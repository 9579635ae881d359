"""`runbook vars`: each variable of a playbook, its value before a run, and where that comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from runbook.cli.sources import load, read_bounded, read_inventory, source_texts
from runbook.model.diagnostic import Span
from runbook.model.playbook import Playbook

KINDS = {"input": "default of the input", "vars": "vars", "vars_files": "vars_files"}
LONGEST = 100
HIDDEN = "***"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One place that gives a variable a value, as it is written there; `file` and `line` where it stands in a text."""

    source: str
    value: Any
    file: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.source} ({self.file}:{self.line})" if self.file else self.source


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A variable: what counts, what that replaced (nearest first), the `set` steps that change it. `host`: on that target alone."""

    name: str
    host: str | None
    value: Any
    source: str
    file: str | None
    line: int | None
    replaces: list[Source]
    set_by: list[str]


@click.command()
@click.argument("playbook")
@click.option("-H", "roles", multiple=True, metavar="ROLE=TARGET", help="Where a role is, as for `run`.")
@click.option("-e", "overrides", multiple=True, metavar="NAME=VALUE|@FILE", help="Replace a variable, or all those of a file.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list on stdout.")
def command(playbook: str, roles: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> int:
    """Say where each variable of PLAYBOOK has its value from, and what that replaced.

    From lowest to highest: defaults of inputs, `vars`, `vars_files`, hosts.yaml, the playbook's own `hosts`, -e. Blocks, steps and `set`
    come between hosts and -e. Values stand as they are written; those of a secret's name are not shown.
    """
    from runbook.render.diagnostics import as_object, as_text

    checked, diagnostics, _ = load(playbook, overrides, roles)
    if diagnostics:
        click.echo(as_text(diagnostics, source_texts(diagnostics)), err=True)
    if checked is None:
        if as_json:
            click.echo(json.dumps(as_object(diagnostics), ensure_ascii=False))
        return 2
    rows = list(table(checked, overrides))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(rows), ensure_ascii=False, indent=2))
        return 0
    for line in lines(rows):
        click.echo(line)
    return 0


def table(playbook: Playbook, overrides: Sequence[str]) -> Iterator[Row]:
    """A row for each variable, in the order of their names, and one for each host that has its own value."""
    typed = _overrides(playbook, overrides)
    hosts = _host_vars(playbook)
    changed = _set_by(playbook)
    names = {*playbook.inputs, *playbook.origins, *changed, *(name for vars in hosts.values() for name in vars)}
    for name in sorted(names):
        own = [Source(source=KINDS[one.kind], value=one.value, **_at(one.span)) for one in playbook.origins.get(name, ())]
        if not own and name in playbook.inputs:
            own = [Source(source="input without a default: give it by -e", value=None, **_at(playbook.spans.get(f"inputs.{name}")))]
        top = typed.get(name, [])
        if own or top or name in changed:
            yield _row(name, None, [*own, *top] or [Source(source="a `set` step", value=None)], changed)
        for host, vars in hosts.items():
            if name in vars and not top:
                yield _row(name, host, [*own, *vars[name]], changed)


def _row(name: str, host: str | None, sources: list[Source], changed: Mapping[str, list[str]]) -> Row:
    from runbook.engine.redact import looks_secret

    if looks_secret(name):
        sources = [msgspec.structs.replace(one, value=None if one.value is None else HIDDEN) for one in sources]
    *others, last = sources
    return Row(
        name=name,
        host=host,
        value=last.value,
        source=last.source,
        file=last.file,
        line=last.line,
        replaces=others[::-1],
        set_by=changed.get(name, []),
    )


def _overrides(playbook: Playbook, items: Sequence[str]) -> dict[str, list[Source]]:
    """What each `-e` gives, typed as a run would type it."""
    from runbook.playbook.overrides import apply_overrides, read_overrides

    found: dict[str, list[Source]] = {}
    host_vars = [name for targets in playbook.hosts.values() for target in targets for name in target.vars]
    declared = {**dict.fromkeys([*playbook.inputs, *host_vars]), **playbook.vars}
    for item in items:
        values = apply_overrides(declared, read_overrides([item], read_bounded)[0], playbook.inputs)[0]
        for name, value in values.items():
            found.setdefault(name, []).append(Source(source=f"-e {item}" if item.startswith("@") else "-e", value=value))
    return found


def _host_vars(playbook: Playbook) -> dict[str, dict[str, list[Source]]]:
    """By target: what hosts.yaml and the playbook's own `hosts` give to its names, lowest first."""
    inventory, _ = read_inventory()
    found: dict[str, dict[str, list[Source]]] = {}
    for target in (target for targets in playbook.hosts.values() for target in targets):
        entry = inventory.get(target.target)
        known: Mapping[str, Any] = entry.vars if entry else {}
        for name, value in target.vars.items():
            layers = [Source(source="hosts.yaml", value=known[name])] if name in known else []
            if name not in known or value != known[name]:
                layers.append(Source(source="hosts of the playbook", value=value, **_at(playbook.spans.get("hosts"))))
            found.setdefault(target.target, {})[name] = layers
    return found


def _set_by(playbook: Playbook) -> dict[str, list[str]]:
    """By name: the `set` steps of the file itself. Those of included files change variables of their own."""
    from runbook.engine.tree import Tree

    found: dict[str, list[str]] = {}
    for id, node in Tree(playbook).steps[""].items():
        for name in next(iter(node.body.values()), {}) if node.type == "set" else ():
            found.setdefault(name, []).append(id)
    return found


def _at(span: Span | None) -> dict[str, Any]:
    return {"file": span.file, "line": span.line} if span else {}


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """For people."""
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        where = f" on {row.host}" if row.host else ""
        place = Source(source=row.source, value=None, file=row.file, line=row.line).place
        yield f"{row.name:<{width}}  {_shown(row.value)}{where}"
        yield f"{'':<{width}}    from {place}"
        for one in row.replaces:
            yield f"{'':<{width}}    instead of {_shown(one.value)} from {one.place}"
        if row.set_by:
            yield f"{'':<{width}}    changed in the run by {', '.join(row.set_by)}"


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) and value.strip() == value and value else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
