"""The table of step types. A new one is one file beside this one and one line here.

A type is imported when it is first asked for: checking a playbook loads the types that it uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
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


class Table(Mapping[str, "type[Step]"]):
    """Step types by their key in a playbook."""

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


TABLE = Table()
