"""What a playbook takes when it is run or included: its inputs, each with a type, and whether a value fits."""

from __future__ import annotations

from typing import Any

from runbook.model.playbook import Input
from runbook.model.units import Duration, Size
from runbook.playbook.keys import INPUT_TYPES
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems
from runbook.playbook.shape import Misfit, Shape, shown, type_of
from runbook.playbook.top import check_var_names

STEP = "step"
"""The type of an input that names a step of the including playbook."""
_TYPES: dict[str, Any] = {
    "any": Any,
    "text": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "list": list[Any],
    "mapping": dict[str, Any],
    "duration": Duration,
    "size": Size,
    STEP: str,
}
assert tuple(_TYPES) == INPUT_TYPES


def read_inputs(problems: Problems, raw: Any) -> dict[str, Input]:
    """The declared inputs; those whose declaration has no shape are left out, which is reported with the top level's shape."""
    declared = raw if isinstance(raw, dict) else {}
    check_var_names(problems, declared, ("inputs",))
    found: dict[str, Input] = {}
    for name, value in declared.items():
        if not isinstance(value, dict) or value.get("type", "any") not in INPUT_TYPES:
            continue
        choices = value.get("choices")
        one = Input(
            type=value.get("type", "any"),
            default=value.get("default"),
            required="default" not in value,
            choices=choices if isinstance(choices, list) else [],
            help=str(value.get("help") or ""),
        )
        found[name] = one
        _check_declaration(problems, str(name), one, ("inputs", name))
    return found


def _check_declaration(problems: Problems, name: str, one: Input, path: Path) -> None:
    for index, choice in enumerate(one.choices):
        for fault in _misfits(name, one, choice)[:1]:
            problems.add(fault.code, f"a choice of {fault.summary}", (*path, "choices", index), fault.hint)
    if one.required:
        return
    if one.type == STEP:
        problems.add("type", f"`{name}` names a step, and no step is there by default", (*path, "default"), "leave `default` out")
    elif one.default is not None and (wrong := misfit(name, one, one.default)):
        problems.add(wrong.code, wrong.summary, (*path, "default", *wrong.path), wrong.hint)


def misfit(name: str, one: Input, value: Any) -> Misfit | None:
    """Why a value cannot be that input's; None when it can, or when only a run can tell. Its path leads inside the value."""
    found = _misfits(name, one, value)
    if found:
        return found[0]._replace(path=found[0].path[1:])
    if one.choices and value not in one.choices and not (isinstance(value, str) and "${{" in value):
        allowed = ", ".join(f"`{choice}`" for choice in one.choices)
        hint = suggestion(value, map(str, one.choices)) if isinstance(value, str) else None
        close = hint if hint and hint.startswith("did") else f"it is one of {allowed}"
        return Misfit((), "choice", f"`{name}` cannot be {shown(value)}", close)
    return None


def _misfits(name: str, one: Input, value: Any) -> list[Misfit]:
    return Shape().visit(type_of(_TYPES[one.type]), value, (name,)).misfits
