"""`defaults:` at the top of a file: for a step type, values of keys that a step leaves out."""

from __future__ import annotations

from typing import Any

from runbook.model.step_type import BrokenStepType
from runbook.playbook.drafts import StepDraft, Table, fields_of
from runbook.playbook.names import INCLUDE
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Problems
from runbook.playbook.shape import Shape, type_of

TIMEOUT = "timeout"
"""Of the keys of every step the one that may stand inside a type's mapping."""


class Defaults:
    """The values of a file, by step type. What cannot be a default is reported and left out."""

    def __init__(self, problems: Problems, table: Table, raw: Any) -> None:
        self.problems = problems
        self.table = table
        self.values: dict[str, dict[str, Any]] = {}
        for name, keys in raw.items() if isinstance(raw, dict) else ():
            if name not in table:
                hint = suggestion(str(name), table)
                problems.add("unknown-step", f"unknown step type `{name}`", ("defaults", name), hint, at_key=True)
            else:
                self._add(name, keys)

    def _add(self, name: str, keys: Any) -> None:
        try:
            free = name == INCLUDE or getattr(self.table[name], "FREE", False)
        except BrokenStepType as broken:
            self.problems.add("broken-step-type", broken.summary, ("defaults", name), broken.hint, at_key=True)
            return
        if free:
            self.problems.add("no-default", f"`{name}` has no keys of its own", ("defaults", name), "leave it out", at_key=True)
        elif isinstance(keys, dict):
            self.values[name] = self._known(name, keys)

    def _known(self, name: str, keys: dict[str, Any]) -> dict[str, Any]:
        allowed = (*fields_of(self.table[name]), TIMEOUT)
        for key in keys:
            if key not in allowed:
                summary = f"`{name}` has no key `{key}`"
                self.problems.add("unknown-key", summary, ("defaults", name, key), suggestion(str(key), allowed), at_key=True)
        return {key: value for key, value in keys.items() if key in allowed}

    def into(self, draft: StepDraft) -> None:
        """Give a step what it leaves out."""
        own = fields_of(draft.cls)
        for key, value in self.values.get(draft.type, {}).items():
            path = ("defaults", draft.type, key)
            if key in own and key not in draft.body:
                draft.body[key] = value
                draft.defaulted[key] = path
            elif key == TIMEOUT and key not in own and key not in draft.common:
                draft.common[key] = value
                draft.common_paths[key] = path
                draft.defaulted[key] = path

    def check_unused(self, used: set[str]) -> None:
        """The types that no step uses: their values are looked at all the same."""
        for name, keys in self.values.items():
            if name in used:
                continue
            for misfit in Shape().visit(type_of(self.table[name]), {key: value for key, value in keys.items() if key != TIMEOUT}).misfits:
                if misfit.path:
                    path = ("defaults", name, *misfit.path)
                    self.problems.add(misfit.code, misfit.summary, path, misfit.hint, at_key=misfit.at == "key")
