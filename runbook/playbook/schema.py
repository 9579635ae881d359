"""The published JSON Schema (2020-12), made from the step structs.

Not `msgspec.json.schema`: it cannot write a unit's default ("3s"), and every value that is not text also takes a `${{ … }}`.
A step is one flat object with an optional property per step type. A `oneOf` over step shapes would answer every mistake with
"not valid under any"; that exactly one type is there is checked by `validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import msgspec.inspect as mi

from runbook.lang.yaml_loader import load
from runbook.model.profile import Profile
from runbook.model.units import UNIT_TYPES
from runbook.playbook.keys import BlockKeys, CommonKeys, PlaybookKeys
from runbook.playbook.shape import UNIT_EXAMPLES, UNIT_WORDS, bare, words_for

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WHOLE_EXPRESSION = r"^\s*\$\{\{[\s\S]*\}\}\s*$"
_DURATION = r"^\s*(\d+(\.\d+)?(ms|s|m|h|d))+\s*$"
UNIT_PATTERNS = {
    "Duration": _DURATION,
    "TimeBox": _DURATION,
    "Size": r"^\s*\d+(\.\d+)?\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*$",
    "Rung": r"^\s*(SIG)?[A-Z][A-Z0-9]*\s+(\d+(\.\d+)?(ms|s|m|h|d))+\s*$",
    "Rate": r"^\s*\d+\s+per\s+(\d+(\.\d+)?(ms|s|m|h|d))+\s*$",
}
_NAMES: dict[Any, str] = {mi.StrType: "string", mi.IntType: "integer", mi.FloatType: "number", mi.BoolType: "boolean", mi.NoneType: "null"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


TOP_EXAMPLES: dict[str, Any] = {
    "hosts": {"gpu": "my-box"},
    "vars": {"port": 8000},
    "vars_files": ["vars/my_box.yaml"],
    "secrets": ["HF_TOKEN"],
    "inputs": {"port": {"type": "integer", "default": 8000, "help": "where it listens"}},
    "outputs": {"log": "${{ steps.server.log }}"},
    "defaults": {"request": {"timeout": "90s"}},
    "steps": [{"run": "nvidia-smi"}],
    "always": [{"kill": {"step": "server"}}],
    "post": "env:TICKET_URL",
}


def playbook_schema(table: Mapping[str, type[msgspec.Struct]]) -> dict[str, Any]:
    """The schema of a playbook whose step types are those of `table`."""
    node = struct_schema(mi.type_info(CommonKeys), expressions=True)
    node["description"] = "One step: one step type with its keys, or a block; and the keys that every step may carry."
    node["properties"].update(struct_schema(mi.type_info(BlockKeys), expressions=True)["properties"])
    node["properties"].update({name: {"$ref": f"#/$defs/{name}"} for name in sorted(table)})
    _nest(node, "block", "rescue", "always")
    node["defaultSnippets"] = [_block_snippet(), *(found for name in sorted(table) if (found := _snippet(table[name])))]
    top = struct_schema(mi.type_info(PlaybookKeys), expressions=False)
    _nest(top, "steps", "always")
    top["defaultSnippets"] = [_playbook_snippet()]
    for key, example in TOP_EXAMPLES.items():
        top["properties"][key]["examples"] = [example]
    return {
        "$schema": DIALECT,
        "title": "runbook playbook",
        **top,
        "$defs": {"step": node, **{name: step_schema(table[name]) for name in sorted(table)}},
    }


def profile_schema() -> dict[str, Any]:
    """The schema of an engine profile."""
    return {"$schema": DIALECT, "title": "runbook engine profile", **struct_schema(mi.type_info(Profile), expressions=False)}


def _nest(schema: dict[str, Any], *keys: str) -> None:
    for key in keys:
        schema["properties"][key]["items"] = {"$ref": "#/$defs/step"}


def step_schema(step: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a step type's value: its mapping, or the shorthand."""
    info: Any = mi.type_info(step)
    free, shorthand = getattr(step, "FREE", False), getattr(step, "SHORTHAND", None)
    described = {"description": first_paragraph(step), **_examples(step)}
    if free:
        return {"type": "object", **described}
    body = struct_schema(info, expressions=True)
    body.setdefault("properties", {}).setdefault(
        "timeout", {"description": "time box of the step", **type_schema(mi.CustomType(UNIT_TYPES[0]), True)}
    )
    if shorthand is None:
        return {**_optional_body(body), **described}
    field = next(field for field in info.fields if field.encode_name == shorthand)
    short = type_schema(field.type, True)
    return {"anyOf": [{**short, "description": f"short for `{shorthand}`"}, body], **described}


def _optional_body(body: dict[str, Any]) -> dict[str, Any]:
    """A type that needs no key may stand without a value (`- kill:`)."""
    return body if body.get("required") else {**body, "type": ["object", "null"]}


def struct_schema(info: Any, *, expressions: bool) -> dict[str, Any]:
    """An object schema for a struct; unknown keys are errors."""
    schema: dict[str, Any] = {"type": "object", "description": first_paragraph(info.cls), "properties": {}}
    for field in info.fields:
        schema["properties"][field.encode_name] = field_schema(field, expressions)
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def field_schema(field: Any, expressions: bool) -> dict[str, Any]:
    """A field's schema with its description and, when it says something, its default."""
    schema = dict(type_schema(field.type, expressions))
    described = description_of(field.type)
    if described:
        schema["description"] = described
    default = plain_default(field)
    if default not in (None, "", [], {}):
        schema["default"] = default
    return schema


def type_schema(type_: Any, expressions: bool) -> dict[str, Any]:
    """The schema of one type. With `expressions`, a whole expression fits as well."""
    type_, extra = bare(type_)
    if isinstance(type_, mi.AnyType):
        return {}
    if isinstance(type_, mi.UnionType):
        return {"anyOf": [type_schema(part, expressions) for part in type_.types]}
    if isinstance(type_, mi.StrType):
        return _text(type_, extra, expressions)
    if isinstance(type_, mi.CustomType):
        return _unit(type_.cls.__name__, expressions)
    if isinstance(type_, mi.LiteralType):
        choices: dict[str, Any] = {"enum": sorted(type_.values, key=str)}
        return {"anyOf": [choices, {"type": "string", "pattern": WHOLE_EXPRESSION}]} if expressions else choices
    schema = _container(type_, expressions) or {"type": _NAMES[type(type_)]}
    for ours, theirs in _BOUNDS.items():
        if getattr(type_, ours, None) is not None:
            schema[theirs] = getattr(type_, ours)
    if expressions and schema["type"] != "null":
        # `pattern` speaks of strings alone, so one flat object serves both forms.
        schema["type"] = [schema["type"], "string"]
        schema["pattern"] = WHOLE_EXPRESSION
        schema["patternErrorMessage"] = f"must be {words_for(type_)}, or one whole `${{{{ … }}}}`"
    return schema


def _container(type_: Any, expressions: bool) -> dict[str, Any] | None:
    if isinstance(type_, mi.StructType):
        return struct_schema(type_, expressions=expressions)
    if isinstance(type_, mi.DictType):
        return {"type": "object", "additionalProperties": type_schema(type_.value_type, expressions)}
    if isinstance(type_, (mi.ListType, mi.VarTupleType)):
        schema = {"type": "array", "items": type_schema(type_.item_type, expressions)}
        return {**schema, "minItems": type_.min_length} if type_.min_length else schema
    return None


def _unit(name: str, expressions: bool) -> dict[str, Any]:
    pattern = UNIT_PATTERNS[name]
    said = f"{UNIT_WORDS[name]} is text with its unit, as in `{UNIT_EXAMPLES[name]}`"
    # The last two are words of editors alone: without them one would show the pattern, or ask for a "string".
    return {
        "type": "string",
        "pattern": rf"{pattern}|\$\{{\{{" if expressions else pattern,
        "examples": [UNIT_EXAMPLES[name]],
        "errorMessage": said,
        "patternErrorMessage": said,
    }


def _text(type_: mi.StrType, extra: dict[str, Any], expressions: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if type_.min_length:
        schema["minLength"] = type_.min_length
    if type_.pattern:
        schema["pattern"] = rf"{type_.pattern}|\$\{{\{{" if expressions else type_.pattern
    return {**schema, "format": "regex"} if extra.get("kind") == "regex" and not expressions else schema


def description_of(type_: Any) -> str:
    """The description that an annotation carries, wherever it stands in it."""
    while isinstance(type_, mi.Metadata):
        told = (type_.extra_json_schema or {}).get("description")
        if told:
            return str(told)
        type_ = type_.type
    return UNIT_WORDS.get(type_.cls.__name__, "") if isinstance(type_, mi.CustomType) else ""


def plain_default(field: Any) -> Any:
    """A field's default as it would be typed; None when there is none."""
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else None
    return typed_form(value)


def typed_form(value: Any) -> Any:
    """Struct values as somebody would type them: units as text, tuples as lists."""
    if isinstance(value, UNIT_TYPES):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [typed_form(item) for item in value]
    if isinstance(value, dict):
        return {key: typed_form(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        info: Any = mi.type_info(type(value))
        shown = {field.encode_name: (typed_form(getattr(value, field.name)), plain_default(field)) for field in info.fields}
        return {key: item for key, (item, default) in shown.items() if item != default}
    return value


def first_paragraph(cls: type) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def _example(step: Any) -> dict[str, Any]:
    """The step of the type's own example."""
    document, _ = load(step.EXAMPLE, step.TYPE)
    data = document.data if document is not None else None
    data = data[0] if isinstance(data, list) and data else data
    return data if isinstance(data, dict) and step.TYPE in data else {}


def _examples(step: Any) -> dict[str, Any]:
    """The value that the type's own example gives it."""
    data = _example(step)
    return {"examples": [data[step.TYPE]]} if data else {}


# What editors insert as a whole. In their words `$` begins a place to fill in, so a text's own is escaped; quotes are ours to write.


def _snippet(step: Any) -> dict[str, Any] | None:
    data = _example(step)
    return {"label": f"{step.TYPE} (example)", "description": first_paragraph(step), "body": _escaped(data)} if data else None


def _block_snippet() -> dict[str, Any]:
    body = {"block": [{"run": "${1:uname -r}"}], "rescue": [{"run": "${2:dmesg}"}]}
    return {"label": "block (example)", "description": "Steps that belong together, and what runs when one fails.", "body": body}


def _playbook_snippet() -> dict[str, Any]:
    body = {
        "runbook": 1,
        "name": "${1:What it is called}",
        "description": "${2:What question does it answer?}",
        "hosts": {"gpu": "${3:lab}"},
        "steps": [{"run": "${4:nvidia-smi}"}],
    }
    return {"label": "playbook (example)", "description": "A new playbook: a host and a step.", "body": body}


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace("$", "\\$")
        document, problems = load(f"- {value}", "snippet")
        plain = document is not None and document.data == [value] and not problems
        return text if plain else "'" + text.replace("'", "''") + "'"
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
