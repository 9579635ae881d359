"""Variables that may use variables: each is filled in when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runbook.lang.expressions import Problem, template


class Vars(Mapping[str, Any]):
    """The `vars` of a scope. A later layer wins over an earlier one, name by name.

    `names` is the rest of the scope. A value that cannot be had raises `Problem`, which the evaluation that asked reports; the
    static checks have found circles already, but a layer that only exists at run time may close one.
    """

    def __init__(self, layers: Sequence[Mapping[str, Any]], names: Mapping[str, Any]) -> None:
        self._raw = {name: value for layer in layers for name, value in layer.items()}
        self._scope = {**names, "vars": self}
        self._done: dict[str, Any] = {}
        self._open: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name not in self._done:
            raw = self._raw[name]
            if name in self._open:
                raise Problem(f"these variables need each other: {' → '.join([*self._open[self._open.index(name) :], name])}")
            self._open.append(name)
            try:
                answer = template(raw, self._scope)
            finally:
                self._open.pop()
            failed = next((problem for problem in answer.problems if not problem.unknown), None)
            if failed is not None:
                raise Problem(f"vars.{name}: {failed.text}")
            self._done[name] = answer.value
        return self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, name: object) -> bool:
        return name in self._raw
