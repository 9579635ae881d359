"""Variables from outside the playbook: `-e name=value`, `-e @file`, `vars_files:`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from runbook.lang.yaml_loader import Document, load
from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import Input
from runbook.playbook.inputs import misfit
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Problems
from runbook.playbook.top import check_var_names

_EXAMPLES: dict[str, Any] = {
    "text": "",
    "integer": 0,
    "number": 0.0,
    "boolean": True,
    "list": [],
    "mapping": {},
    "duration": "",
    "size": "",
}
"""A value of each type of input that says how text from the command line is to be read."""


class Typed(str):
    """A value as typed on the command line: it takes the type of the declared default."""

    __slots__ = ()


def parse_override(text: str) -> tuple[str, Typed] | Diagnostic:
    """`name=value` of an `-e` option."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        return Diagnostic(code="bad-override", summary=f"`-e {text}` names no variable", hint="write `-e name=value`, or `-e @file.yaml`")
    return name.strip(), Typed(value)


def read_vars(source: bytes, file: str) -> tuple[dict[str, Any], Document | None, list[Diagnostic]]:
    """The variables of a vars file: a mapping of names to values."""
    document, found = load(source, file)
    if document is None:
        return {}, None, found
    problems = Problems(document)
    if document.data is None:
        return {}, document, found
    if not isinstance(document.data, dict):
        problems.add("type", "a vars file is a mapping of names to values", (), "write `name: value` lines")
        return {}, document, found + problems.sorted()
    check_var_names(problems, document.data, ())
    return dict(document.data), document, found + problems.sorted()


def apply_overrides(
    declared: Mapping[str, Any], overrides: Mapping[str, Any], inputs: Mapping[str, Input] | None = None
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Overrides with their types: typed text becomes what the input's type or the default is. An undeclared name is a mistake."""
    inputs = inputs or {}
    values: dict[str, Any] = {}
    found: list[Diagnostic] = []
    for name, value in overrides.items():
        if name not in declared:
            hint = suggestion(name, declared) or "declare it under `vars:` with a default"
            found.append(Diagnostic(code="undefined-var", summary=f"`-e {name}` overrides no variable of this playbook", hint=hint))
            continue
        example = _EXAMPLES.get(inputs[name].type, declared[name]) if name in inputs else declared[name]
        what = "input" if name in inputs else "default"
        given: Any = as_declared(value, example, what) if isinstance(value, Typed) else value
        if not isinstance(given, _Misfit) and name in inputs:
            fault = misfit(name, inputs[name], given)
            given = _Misfit(fault.summary, fault.hint or "") if fault else given
        if isinstance(given, _Misfit):
            found.append(Diagnostic(code="type", summary=f"`-e {name}={value}`: {given.why}", hint=given.hint or None))
        else:
            values[name] = given
    return values, found


class _Misfit:
    def __init__(self, why: str, hint: str) -> None:
        self.why = why
        self.hint = hint


def as_declared(text: str, default: Any, what: str = "default") -> Any:
    """Text from the command line in the type of a default; a misfit says why it cannot be. `what` says whose type that is."""
    plain = str(text)
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(plain, _Misfit(f"the {what} is true or false", "write `true` or `false`"))
    if isinstance(default, (int, float)):
        return _number(plain, type(default), what)
    if isinstance(default, (list, dict)) or default is None:
        return _yaml(plain, default, what)
    return plain


def _number(text: str, kind: type, what: str) -> Any:
    if not re.fullmatch(r"[-+]?\d+" if kind is int else r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        return _Misfit(f"the {what} is a {'whole number' if kind is int else 'number'}", "write digits, as in `3`")
    return kind(text)


def _yaml(text: str, default: Any, what: str) -> Any:
    document, found = load(text.encode(), "-e")
    if document is None or found:
        return _Misfit(
            found[0].summary if found else "this is not YAML",
            "write YAML, as in " + ("`{a: 1}`" if isinstance(default, dict) else "`[a, b]`"),
        )
    if isinstance(default, list) and not isinstance(document.data, list):
        return _Misfit(f"the {what} is a list", "write `[a, b]`")
    if isinstance(default, dict) and not isinstance(document.data, dict):
        return _Misfit(f"the {what} is a mapping", "write `{a: 1}`")
    return document.data


def read_overrides(items: Iterable[str], read: Any) -> tuple[dict[str, Any], list[Diagnostic]]:
    """All `-e` options in order; later ones win. `read(path)` gives a file's bytes and may raise OSError."""
    values: dict[str, Any] = {}
    found: list[Diagnostic] = []
    for item in items:
        if item.startswith("@"):
            try:
                more, _, problems = read_vars(read(item[1:]), item[1:])
            except OSError as error:
                more, problems = {}, [unreadable(item[1:], error, "-e @FILE takes a path from here")]
            values |= more
            found += problems
            continue
        parsed = parse_override(item)
        if isinstance(parsed, Diagnostic):
            found.append(parsed)
        else:
            values[parsed[0]] = parsed[1]
    return values, found


def unreadable(file: str, error: OSError, hint: str | None = None) -> Diagnostic:
    """A file that cannot be read."""
    return Diagnostic(code="unreadable", summary=f"cannot read `{file}`: {error.strerror or error}", hint=hint)
