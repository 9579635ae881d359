"""A step type as people read it: its keys, its results, an example; and the reference page of all step types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from runbook.playbook.keys import BlockKeys, CommonKeys
from runbook.playbook.schema import description_of, first_paragraph, plain_default
from runbook.playbook.shape import bare, type_of, words_for


class Key(NamedTuple):
    """One key: its dotted path, its type in words, its default as typed (None: none), what it means."""

    path: str
    type: str
    required: bool
    default: Any
    description: str


class StepPage(NamedTuple):
    """What is said about a step type."""

    type: str
    summary: str
    text: str
    timeout: str
    shorthand: str | None
    keys: list[Key]
    results: Mapping[str, str]
    example: str


def describe(step: type[msgspec.Struct]) -> StepPage:
    """Read a step type's struct."""
    cls: Any = step
    paragraphs = [" ".join(part.split()) for part in (cls.__doc__ or "").split("\n\n")]
    example = cls.EXAMPLE.strip("\n")
    return StepPage(
        type=cls.TYPE,
        summary=paragraphs[0],
        text="\n\n".join(part for part in paragraphs[1:] if part),
        timeout=cls.TIMEOUT,
        shorthand=cls.SHORTHAND,
        keys=[] if cls.FREE else keys_of(type_of(step)),
        results=cls.RESULTS,
        example=example if example.startswith("- ") else "- " + example.replace("\n", "\n  "),
    )


def keys_of(info: Any, prefix: str = "") -> list[Key]:
    """The keys of a struct and, below each, those of the structs in it."""
    rows = []
    for field in info.fields:
        path = f"{prefix}{field.encode_name}"
        default = None if field.required else plain_default(field)
        rows.append(Key(path, words_for(field.type), field.required, default, description_of(field.type)))
        for inner, mark in _structs(field.type):
            rows += keys_of(inner, f"{path}{mark}.")
    return rows


def _structs(type_: Any, mark: str = "") -> list[tuple[Any, str]]:
    """Structs inside a type, each once; those in a list are marked `[]`."""
    type_, _ = bare(type_)
    if isinstance(type_, mi.StructType):
        return [(type_, mark)]
    if isinstance(type_, mi.UnionType):
        found = [pair for part in type_.types for pair in _structs(part, mark)]
        return list({pair[0].cls: pair for pair in found}.values())
    if isinstance(type_, (mi.ListType, mi.VarTupleType)):
        return _structs(type_.item_type, f"{mark}[]")
    return []


def default_text(key: Key) -> str:
    """A default for a table: as YAML on one line; empty when nothing is the default."""
    if key.required:
        return "required"
    if key.default in (None, "", [], {}):
        return ""
    return key.default if isinstance(key.default, str) else json.dumps(key.default, ensure_ascii=False)


def steps_page(table: Mapping[str, type[msgspec.Struct]]) -> str:
    """The reference page of all step types, in Markdown."""
    parts = [
        "# Step types",
        "Made from the step types by `make generate`; do not edit. A step is a mapping with exactly one of these keys, beside the"
        " [keys of every step](#keys-of-every-step). Every value but text may also be a whole `${{ … }}`. Results are read as"
        " `steps.<id>.<result>`; every step also has `status`, `verdict`, `seconds`, `host`, `reason` and `diagnosis`.",
        "| step type | what it does |\n|---|---|\n"
        + "\n".join(f"| [{name}](#{name}) | {_cell(first_paragraph(table[name]))} |" for name in table),
    ]
    for name in table:
        parts += _section(describe(table[name]))
    parts += ["## Keys of every step", keys_table(keys_of(type_of(CommonKeys)))]
    parts += [
        "## Blocks",
        first_paragraph(BlockKeys) + " Of the keys of every step a block takes `id name host when timeout vars`.",
        keys_table(keys_of(type_of(BlockKeys))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(page: StepPage) -> list[str]:
    facts = [f"Time box: {page.timeout}."]
    if page.shorthand and page.keys:
        facts.append(f"Short form: a value that is no mapping stands for `{page.shorthand}`.")
    rows = "\n".join(f"| `{name}` | {_cell(text)} |" for name, text in page.results.items())
    return [
        f"## {page.type}",
        page.summary,
        page.text,
        " ".join(facts),
        f"```yaml\n{page.example}\n```",
        keys_table(page.keys),
        f"| result | meaning |\n|---|---|\n{rows}" if rows else "",
    ]


def keys_table(keys: list[Key]) -> str:
    """Keys as a table in Markdown; nothing for none."""
    if not keys:
        return ""
    rows = "\n".join(f"| `{key.path}` | {_cell(key.type)} | {_code(default_text(key))} | {_cell(key.description)} |" for key in keys)
    return f"| key | type | default | meaning |\n|---|---|---|---|\n{rows}"


def _code(text: str) -> str:
    return text if text in ("", "required") else f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
