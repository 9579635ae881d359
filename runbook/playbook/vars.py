"""Variables that may use variables: each is filled in when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runbook.lang.expressions import Problem, Unknown, template
from runbook.lang.tokens import mentions


class Bound(Mapping[str, Any]):
    """Values that another file wrote (`with:` of an include): each is filled in by that file's names when it is asked for.

    `fits` says what is wrong with a value that is known only now, or None.
    """

    def __init__(
        self, values: Mapping[str, Any], scope: Callable[[], Mapping[str, Any]], fits: Callable[[str, Any], str | None] | None = None
    ) -> None:
        self._values = values
        self._scope = scope
        self._fits = fits

    def __getitem__(self, name: str) -> Any:
        raw = self._values[name]
        value = filled(f"vars.{name}", raw, self._scope()) if mentions(raw) else raw
        fault = self._fits(name, value) if self._fits and not isinstance(value, Unknown) else None
        if fault is not None:
            raise Problem(fault)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def filled(what: str, raw: Any, scope: Mapping[str, Any]) -> Any:
    """A value with its expressions filled in; raises Problem, which names `what`, when it cannot be had."""
    answer = template(raw, scope)
    failed = next((problem for problem in answer.problems if not problem.unknown), None)
    if failed is not None:
        raise Problem(f"{what}: {failed.text}")
    return answer.value


class Vars(Mapping[str, Any]):
    """The `vars` of a scope. A later layer wins over an earlier one, name by name.

    `names` is the rest of the scope. A value that cannot be had raises `Problem`, which the evaluation that asked reports; the
    static checks have found circles already, but a layer that only exists at run time may close one.
    """

    def __init__(self, layers: Sequence[Mapping[str, Any]], names: Mapping[str, Any]) -> None:
        self._home = {name: layer for layer in layers for name in layer}
        self._scope = {**names, "vars": self}
        self._done: dict[str, Any] = {}
        self._open: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name not in self._done:
            layer = self._home[name]
            if name in self._open:
                raise Problem(f"these variables need each other: {' → '.join([*self._open[self._open.index(name) :], name])}")
            self._open.append(name)
            try:
                self._done[name] = layer[name] if isinstance(layer, Bound) else filled(f"vars.{name}", layer[name], self._scope)
            finally:
                self._open.pop()
        return self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, name: object) -> bool:
        return name in self._home
