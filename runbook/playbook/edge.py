"""Which keys of a playbook begin at its left edge, and which of them slipped into the block above."""

from __future__ import annotations

from typing import Any

from runbook.lang.document import Path
from runbook.lang.yaml_edge import Edge
from runbook.playbook.keys import BLOCK, COMMON, TOP, PlaybookKeys
from runbook.playbook.shape import Shape, type_of


def strays(data: Any) -> list[Path]:
    """Keys with a list or mapping that stand in the value of another key, do not fit there and fit at the left edge."""
    if not isinstance(data, dict):
        return []
    inner = [
        (outer, key)
        for outer, value in data.items()
        if outer in TOP and isinstance(value, dict)
        for key in value
        if key in TOP and key not in data and isinstance(value[key], (list, dict)) and value[key]
    ]
    return [path for path in inner if _slipped(data, path)] if inner else []


def _slipped(data: dict[str, Any], path: tuple[str, str]) -> bool:
    outer, key = path
    if key == "steps" and isinstance(data[outer][key], list):
        return True
    return _wrong({outer: data[outer]}, path) and not _wrong({key: data[outer][key]}, (key,))


def _wrong(data: dict[str, Any], path: Path) -> bool:
    """Whether what stands at a path, or in it, is not what may stand there."""
    return any(misfit.path[: len(path)] == path for misfit in Shape().visit(type_of(PlaybookKeys), data).misfits)


EDGE = Edge(frozenset(TOP), frozenset(TOP) & {*COMMON, *BLOCK}, strays)
