"""`runbook tensors`: two captures or checkpoints, number by number."""

from __future__ import annotations

import json
from typing import Any

import click

from runbook.cli.tensor_diff import Unreadable, compare, load

EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2
MOST_ROWS = 40
HEAD = ("", "tensor", "shape", "type", "max abs", "max rel", "cosine", "beyond", "NaN", "first difference")


@click.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option("--atol", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Absolute tolerance.")
@click.option("--rtol", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Tolerance relative to the larger magnitude.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only tensors whose names match; `*` stands for any text.")
@click.option("--all", "everything", is_flag=True, help="Show equal tensors too, and every row.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(a: str, b: str, atol: float, rtol: float, only: tuple[str, ...], everything: bool, as_json: bool) -> int:
    """Compare the tensors of A and B: safetensors files, torch files, or folders of them, matched by name.

    Exit codes: 0 equal within the tolerances, 1 different, 2 one of them cannot be read.
    """
    try:
        here, there = load(a), load(b)
        if only:
            here, there = _only(here, only), _only(there, only)
        if not here and not there:
            raise Unreadable("there is nothing to compare" + (f": no tensor matches {', '.join(only)}" if only else ""))
        found = compare(here, there, atol=atol, rtol=rtol)
    except Unreadable as problem:
        if as_json:
            click.echo(json.dumps({"equal": None, "problem": str(problem)}, ensure_ascii=False))
        else:
            click.echo(f"error: {problem}", err=True)
        return UNREADABLE
    if as_json:
        click.echo(json.dumps({"a": a, "b": b, "atol": atol, "rtol": rtol, **found}, ensure_ascii=False))
    else:
        click.echo("\n".join(table(found, everything)))
    return EQUAL if found["equal"] else DIFFERENT


def _only(tensors: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    from runbook.steps.tensor_names import matcher

    meant = matcher(patterns)
    return {name: tensor for name, tensor in tensors.items() if meant(name)}


def table(found: dict[str, Any], everything: bool) -> list[str]:
    """The lines for people: what differs, then a summary."""
    rows = [_cells(name, row) for name, row in found["tensors"].items() if everything or not row["equal"]]
    for mark, side, key in (("-", "A", "only_a"), ("+", "B", "only_b")):
        rows += [(mark, name, f"only in {side}", *[""] * 7) for name in found[key]]
    shown = rows if everything else rows[:MOST_ROWS]
    lines = _aligned([HEAD, *shown]) if shown else []
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown)} more: --all shows them")
    equal = found["count"] - len(found["different"])
    parts = [f"{equal} of {found['count']} tensors are equal"]
    parts += [f"{len(found[key])} only in {side}" for key, side in (("only_a", "A"), ("only_b", "B")) if found[key]]
    return [*lines, ", ".join(parts)]


def _cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    mark, kinds = "=" if row["equal"] else "!", _both(*row["dtype"])
    if row["beyond"] is None:
        return (mark, name, _both(*map(str, row["shape"])), kinds, *[""] * 6)
    first = row["first"]
    where = f"{first['index']}: {_number(first['a'])} | {_number(first['b'])}" if first else ""
    nan = f"{row['nan'][0]} | {row['nan'][1]}" if any(row["nan"]) else ""
    cosine = "" if row["cosine"] is None else f"{row['cosine']:.6f}"
    errors = (_number(row["max_abs"]), _number(row["max_rel"]))
    return (mark, name, str(row["shape"][0]), kinds, *errors, cosine, f"{row['beyond']} of {row['elements']}", nan, where)


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} | {b}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    kept = [at for at in range(len(HEAD)) if at < 3 or any(row[at] for row in rows[1:])]
    widths = [max(len(row[at]) for row in rows) for at in kept]
    return ["  ".join(f"{row[at]:<{width}}" for at, width in zip(kept, widths, strict=True)).rstrip() for row in rows]
