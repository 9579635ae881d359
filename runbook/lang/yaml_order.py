"""Entries of a block mapping in another order: whole lines move, with the comments above them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from runbook.lang.yaml_parts import Part, parts


class Order(NamedTuple):
    """Keys of the top level; keys before and after the one that names a step's type; keys whose lists hold steps.

    Keys that are not named stay behind the others, as they are.
    """

    top: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    steps: frozenset[str]


def ordered(text: str, order: Order) -> str:
    """The text with its keys in order. Flow mappings, and what a step type takes, stay as they are."""
    while True:
        root = parts(text)
        found = next(_disordered(root, order), None) if root is not None else None
        if found is None:
            return text
        text = "\n".join(_moved(text.split("\n"), *found))


def _disordered(root: Part, order: Order) -> Iterator[tuple[Part, list[int]]]:
    """Mappings that are out of order, and the entries as they should follow each other."""
    if not (root.block and root.is_map) or not any(key.text == "runbook" for key, _ in root.entries()):
        return
    yield from _one(root, order.top, ())
    yield from _below(root, order)


def _below(mapping: Part, order: Order) -> Iterator[tuple[Part, list[int]]]:
    for key, value in mapping.entries():
        if key.text in order.steps and value.block and not value.is_map:
            for step in value.children:
                if step.block and step.is_map:
                    yield from _one(step, order.before, order.after)
                    yield from _below(step, order)


def _one(mapping: Part, before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[tuple[Part, list[int]]]:
    keys = [key.text for key, _ in mapping.entries()]
    ranks = [before.index(key) if key in before else len(before) + 1 + (after.index(key) if key in after else -1) for key in keys]
    wanted = sorted(range(len(keys)), key=ranks.__getitem__)
    if wanted != list(range(len(keys))):
        yield mapping, wanted


class _Entry(NamedTuple):
    above: list[str]
    first: str
    rest: list[str]


def _moved(lines: list[str], mapping: Part, wanted: list[int]) -> list[str]:
    column = mapping.children[0].column
    prefix = lines[mapping.children[0].line][:column]
    tops = [key.line if number == 0 else _top(lines, key) for number, (key, _) in enumerate(mapping.entries())]
    ends = [*tops[1:], mapping.last(lines) + 1]
    entries = [
        _Entry(lines[top : key.line], lines[key.line][column:], lines[key.line + 1 : end])
        for top, end, (key, _) in zip(tops, ends, mapping.entries(), strict=True)
    ]
    dash = prefix.rfind("-") if "-" in prefix else column
    new: list[str] = []
    for place, number in enumerate(wanted):
        entry = entries[number]
        above = [line and " " * dash + line.lstrip() for line in entry.above if line.strip()] if place == 0 else entry.above
        new += [*above, (" " * column if place else prefix) + entry.first, *entry.rest]
    return [*lines[: tops[0]], *new, *lines[ends[-1] :]]


def _top(lines: list[str], key: Part) -> int:
    """The first of the comment and blank lines above a key that are its own: a comment further in belongs to what stands above."""
    line = key.line
    while line > 0:
        above = lines[line - 1]
        indent = len(above) - len(above.lstrip())
        if above.strip() and not (above.lstrip().startswith("#") and indent <= key.column):
            break
        line -= 1
    return line
