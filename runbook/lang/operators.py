"""Operators over plain data: equality, order, membership, arithmetic, truth; three-valued and bounded."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from runbook.lang.functions import MAX_NESTING, Budget, OverBudget, Problem, checked
from runbook.lang.values import Raw, Unknown, kind, short

_ORDER: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_ARITHMETIC: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}


def truth(value: Any) -> bool | Unknown:
    """Python's truth of plain data; an unknown has none."""
    return value if isinstance(value, Unknown) else bool(value)


def compare(op: ast.cmpop, left: Any, right: Any, budget: Budget) -> bool | Unknown:
    """One comparison. Raises Problem for an order between kinds that have none."""
    if isinstance(op, (ast.Eq, ast.NotEq)):
        same = equal(left, right, budget)
        return same if isinstance(same, Unknown) else same is isinstance(op, ast.Eq)
    if isinstance(op, (ast.In, ast.NotIn)):
        inside = contains(left, right, budget)
        return inside if isinstance(inside, Unknown) else inside is isinstance(op, ast.In)
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    sign, function = _ORDER[type(op)]
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise Problem(f"`{sign}` cannot order a {kind(left)} and a {kind(right)}: {short(left)} {sign} {short(right)}")
    return function(left, right)


def equal(left: Any, right: Any, budget: Budget, depth: int = 0) -> bool | Unknown:
    """Equality by value; unknown when it hangs on a part that is."""
    budget.spend()
    if depth > MAX_NESTING:
        raise OverBudget(f"the value is nested deeper than {MAX_NESTING} levels")
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if len(left) != len(right) or any(key not in right for key in left):
            return False
        return _all_equal(((left[key], right[key]) for key in left), budget, depth)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and _all_equal(zip(left, right, strict=True), budget, depth)
    if isinstance(left, (Mapping, list, tuple)) or isinstance(right, (Mapping, list, tuple)):
        return False
    return bool(left == right)


def _all_equal(pairs: Any, budget: Budget, depth: int) -> bool | Unknown:
    found: Unknown | None = None
    for left, right in pairs:
        same = equal(left, right, budget, depth + 1)
        if isinstance(same, Unknown):
            found = found or same
        elif not same:
            return False
    return True if found is None else found


def contains(item: Any, container: Any, budget: Budget) -> bool | Unknown:
    """`item in container`: a part of a text, an item of a list, a key of a mapping."""
    if isinstance(container, Unknown):
        return container
    if isinstance(container, (list, tuple)):
        found: Unknown | None = None
        for other in container:
            same = equal(item, other, budget)
            if same is True:
                return True
            if isinstance(same, Unknown):
                found = found or same
        return False if found is None else found
    if isinstance(item, Unknown):
        return item
    if isinstance(container, str) and isinstance(item, str):
        budget.spend(len(container) // 1000)
        return item in container
    if isinstance(container, Mapping) and not isinstance(item, (list, tuple, Mapping)):
        return item in container
    raise Problem(f"`in` cannot look for a {kind(item)} in a {kind(container)}: {short(item)} in {short(container)}")


def arithmetic(op: ast.operator, left: Any, right: Any, budget: Budget) -> Any:
    """Arithmetic of numbers; `+` also joins two texts or two lists."""
    sign, function = _ARITHMETIC[type(op)]
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        try:
            return checked(function(left, right))
        except ArithmeticError as error:
            raise Problem(f"`{short(left)} {sign} {short(right)}`: {error}") from error
    if isinstance(op, ast.Add) and isinstance(left, str) and isinstance(right, str):
        budget.spend((len(left) + len(right)) // 1000)
        joined = checked(str.__add__(left, right))
        return Raw(joined) if isinstance(left, Raw) and isinstance(right, Raw) else joined
    if isinstance(op, ast.Add) and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.spend((len(left) + len(right)) // 10)
        return checked([*left, *right])
    raise Problem(f"`{sign}` cannot take a {kind(left)} and a {kind(right)}: {short(left)} {sign} {short(right)}")
