"""The table of step types. A new one is one file beside this one and one line here.

A type is imported when it is first asked for: checking a playbook loads the types that it uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runbook.steps.base import Step

WHERE = {
    "kill": "kill.Kill",
    "wait_gpu_free": "wait_gpu_free.WaitGpuFree",
    "patch": "patch.Patch",
    "restore": "restore.Restore",
    "launch": "launch.Launch",
    "attach": "attach.Attach",
    "diagnose": "diagnose.Diagnose",
    "wait_healthy": "wait_healthy.WaitHealthy",
    "request": "request.Request",
    "grep": "grep.Grep",
    "expect_probe": "expect_probe.ExpectProbe",
    "assert": "assert_.Assert",
    "run": "run.Run",
    "copy": "copy.Copy",
    "fetch": "fetch.Fetch",
    "checkpoint": "checkpoint.Checkpoint",
    "collect": "collect.Collect",
    "set": "set_.Set",
    "pause": "pause.Pause",
    "include": "include.Include",
}


class BuiltIn(Mapping[str, "type[Step]"]):
    """The step types that come with runbook, by their key in a playbook."""

    def __getitem__(self, name: str) -> type[Step]:
        module, _, attribute = WHERE[name].partition(".")
        found: type[Step] = getattr(import_module(f"runbook.steps.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(WHERE)

    def __len__(self) -> int:
        return len(WHERE)

    def __contains__(self, name: object) -> bool:
        return name in WHERE


class Table(BuiltIn):
    """Those of installed packages too, looked for when a name is not built in. One that cannot be had raises BrokenStepType."""

    def __getitem__(self, name: str) -> type[Step]:
        return super().__getitem__(name) if name in WHERE else _plugins().load(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*WHERE, *(name for name in _plugins().found() if name not in WHERE)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in WHERE or name in _plugins().found()


def refused() -> list[str]:
    """The packages whose step types have the name of a built-in one: that stays what it is."""
    clashes = [one for name, found in _plugins().found().items() if name in WHERE for one in found]
    return [f"the step type `{one.name}` of the package {one.package} is not used: `{one.name}` is built in" for one in clashes]


def _plugins() -> ModuleType:
    return import_module("runbook.steps.plugins")


BUILT_IN = BuiltIn()
TABLE = Table()
