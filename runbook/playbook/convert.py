"""Data to step structs, with units read on the way."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import msgspec
import msgspec.inspect as mi

from runbook.model.units import dec_hook
from runbook.playbook.shape import UNIT_EXAMPLES, Hole, Shape, bare, type_of

S = TypeVar("S", bound=msgspec.Struct)


class StepProblem(ValueError):
    """Values that do not fit a step type once they are known: dotted path, sentence, hint."""

    def __init__(self, path: str, summary: str, hint: str | None = None) -> None:
        super().__init__(summary)
        self.path = path
        self.summary = summary
        self.hint = hint


def to_step(step: type[S], body: dict[str, Any]) -> S:
    """A step from its templated body; raises StepProblem with the first misfit in the words that `validate` uses."""
    try:
        return msgspec.convert(body, step, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        misfits = Shape().visit(type_of(step), body).misfits
        if not misfits:
            raise StepProblem("", str(error)) from error
        first = misfits[0]
        raise StepProblem(".".join(map(str, first.path)), first.summary, first.hint) from error


def sketch(step: type[S], body: dict[str, Any], holes: list[Hole]) -> S | None:
    """A step whose expressions outside of text are replaced by values of a fitting type; None when nothing fits.

    Good enough to ask which keys are there together, not what they hold.
    """
    filled = copy.deepcopy(body)
    for hole in reversed(holes):  # from the end, so that places in lists stay right
        parent: Any = filled
        for part in hole.path[:-1]:
            parent = parent[part]
        default_says_enough = hole.default is not None and hole.default is not msgspec.NODEFAULT
        value = None if default_says_enough else _example(hole.type)
        if value is None:
            del parent[hole.path[-1]]
        else:
            parent[hole.path[-1]] = value
    try:
        return msgspec.convert(filled, step, dec_hook=dec_hook)
    except msgspec.ValidationError:
        return None


def _example(type_: Any) -> Any:
    """Some value of a type; None where inventing one would mean inventing keys."""
    type_, _ = bare(type_)
    if isinstance(type_, mi.UnionType):
        return next((value for part in type_.types if (value := _example(part)) is not None), None)
    if isinstance(type_, mi.CustomType):
        return UNIT_EXAMPLES[type_.cls.__name__]
    if isinstance(type_, mi.LiteralType):
        return type_.values[0]
    if isinstance(type_, (mi.IntType, mi.FloatType)):
        return type_.ge if type_.ge is not None else 1
    return True if isinstance(type_, mi.BoolType) else None
