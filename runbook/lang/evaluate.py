"""Evaluate a checked expression over plain data, with three values: true, false and unknown.

Nothing here raises for what the data holds: a failed evaluation is a `problem`, a value that could not be seen an `unknown`.
Work, sizes and nesting are bounded, so an evaluation ends.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from runbook.lang.functions import PLAIN, Budget, Missing, OverBudget, Problem, checked, get, unknown_inside
from runbook.lang.hints import nearest
from runbook.lang.items import Bound, Items
from runbook.lang.operators import arithmetic, compare, truth
from runbook.lang.parse import LITERALS, Parsed
from runbook.lang.values import Unknown, a_kind, kind, short

ENV = "__env__"
"""The scope's mapping behind `env(NAME)`."""
TENSOR_DIFF = "__tensor_diff__"
"""The scope's function behind `tensor_diff(A, B)`: what reads files is given, so that evaluating stays without IO of its own."""
_MAX_PARTS = 40


class Part(NamedTuple):
    """An operand of the expression and its value, for people."""

    source: str
    value_text: str


class Evaluation(NamedTuple):
    """What came of it: `problem` says why there is no value, else `unknown` that it could not be seen, else `value` holds."""

    value: Any
    unknown: Unknown | None
    problem: str | None
    parts: tuple[Part, ...]
    missing: bool = False
    """Of a problem: a key or item is not in data that was seen."""


def evaluate(parsed: Parsed, scope: Mapping[str, Any]) -> Evaluation:
    """Evaluate over `scope`, nested plain data in which any part may be an `Unknown`. Never raises for its content."""
    visitor = _Evaluator(parsed, scope)
    try:
        value = visitor.visit(parsed.tree, {})
    except Problem as problem:
        return Evaluation(None, None, str(problem), visitor.shown(), isinstance(problem, Missing))
    except RecursionError:
        return Evaluation(None, None, "the value is nested too deep", visitor.shown())
    if isinstance(value, Unknown):
        return Evaluation(None, value, None, visitor.shown())
    return Evaluation(value, None, None, visitor.shown())


class _Evaluator(Items):
    """One evaluation. `parts` collects operands; inside a comprehension they go to the item at work."""

    def __init__(self, parsed: Parsed, scope: Mapping[str, Any]) -> None:
        self.parsed = parsed
        self.scope = scope
        self.budget = Budget()
        self.parts: dict[str, str] = {}
        self.noting = True

    def shown(self) -> tuple[Part, ...]:
        return tuple(Part(source, text) for source, text in list(self.parts.items())[:_MAX_PARTS])

    def note(self, node: ast.expr, value: Any) -> None:
        if self.noting and len(self.parts) < _MAX_PARTS:
            try:
                shown = short(value)
            except Problem as problem:  # a lazy mapping with an item that cannot be made: only this line for people is lost
                shown = str(problem)
            self.parts.setdefault(self.parsed.segment(node), shown)

    def visit(self, node: ast.expr, bound: Bound) -> Any:
        self.budget.spend()
        return getattr(self, f"_{type(node).__name__.lower()}")(node, bound)

    # operands ----------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant, bound: Bound) -> Any:
        return node.value

    def _name(self, node: ast.Name, bound: Bound) -> Any:
        value = self._lookup(node.id, bound)
        if node.id not in LITERALS:
            self.note(node, value)
        return value

    def _lookup(self, name: str, bound: Bound) -> Any:
        if name in bound:
            return bound[name]
        if name in LITERALS:
            return LITERALS[name]
        if name in self.scope:
            return self.scope[name]
        raise Problem(_missing("there is no name", name, [key for key in self.scope if not str(key).startswith("_")]))

    def _attribute(self, node: ast.Attribute, bound: Bound) -> Any:
        return self._operand(node, bound)

    def _subscript(self, node: ast.Subscript, bound: Bound) -> Any:
        return self._operand(node, bound)

    def _operand(self, node: ast.expr, bound: Bound) -> Any:
        """A chain such as `a.b[0].c`: noted once, as a whole."""
        value = self._chain(node, bound)
        self.note(node, value)
        return value

    def _chain(self, node: ast.expr, bound: Bound) -> Any:
        self.budget.spend()
        if isinstance(node, ast.Name):
            return self._lookup(node.id, bound)
        if isinstance(node, ast.Attribute):
            return self._key(self._chain(node.value, bound), node.attr, node.value)
        if not isinstance(node, ast.Subscript):
            return self.visit(node, bound)
        value = self._chain(node.value, bound)
        if isinstance(node.slice, ast.Slice):
            return self._slice(value, node, bound)
        key = self.visit(node.slice, bound)
        return key if isinstance(key, Unknown) else self._key(value, key, node.value)

    def _key(self, value: Any, key: Any, node: ast.expr) -> Any:
        if isinstance(value, Unknown):
            return value
        what = self.parsed.segment(node)
        if isinstance(value, Mapping):
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise Problem(f"a {kind(key)} is no key of `{what}`")
            if key in value:
                return value[key]
            raise Missing(_missing(f"`{what}` has no key", key, list(value)))
        if isinstance(value, (list, tuple, str)) and isinstance(key, int) and not isinstance(key, bool):
            if -len(value) <= key < len(value):
                return value[key]
            raise Missing(f"`{what}` has {len(value)} items: there is no [{key}]")
        if isinstance(value, (list, tuple)):
            raise Problem(f"`{what}` is a list of {len(value)} items, not a mapping: choose one, as in `{what}[0]`, before `{short(key)}`")
        raise Problem(f"`{what}` is {a_kind(value)}: it has no `{key}`")

    def _slice(self, value: Any, node: ast.Subscript, bound: Bound) -> Any:
        assert isinstance(node.slice, ast.Slice)
        ends = [None if end is None else self.visit(end, bound) for end in (node.slice.lower, node.slice.upper, node.slice.step)]
        found = next((item for item in (value, *ends) if isinstance(item, Unknown)), None)
        if found is not None:
            return found
        what = self.parsed.segment(node.value)
        if not isinstance(value, (list, tuple, str)):
            raise Problem(f"`{what}` is {a_kind(value)}: it has no parts to take")
        if any(end is not None and (not isinstance(end, int) or isinstance(end, bool)) for end in ends) or ends[2] == 0:
            raise Problem(f"the ends of a part of `{what}` are whole numbers, and its step is not 0")
        part = value[slice(*ends)]
        self.budget.spend(len(part) // 100)
        return list(part) if isinstance(part, tuple) else part

    # literals ----------------------------------------------------------------------------------------------------

    def _list(self, node: ast.List, bound: Bound) -> Any:
        return [self.visit(item, bound) for item in node.elts]

    def _tuple(self, node: ast.Tuple, bound: Bound) -> Any:
        return [self.visit(item, bound) for item in node.elts]

    def _dict(self, node: ast.Dict, bound: Bound) -> Any:
        result = {}
        for key, item in zip(node.keys, node.values, strict=True):
            assert key is not None
            name = self.text_key(self.visit(key, bound))
            if isinstance(name, Unknown):
                return name
            result[name] = self.visit(item, bound)
        return result

    # logic -------------------------------------------------------------------------------------------------------

    def _boolop(self, node: ast.BoolOp, bound: Bound) -> Any:
        """Python's `and`, `or`, with the third value: after an unknown only a boolean that decides counts."""
        decides = isinstance(node.op, ast.Or)
        found: Unknown | None = None
        value: Any = None
        for item in node.values:
            try:
                value = self.visit(item, bound)
                verdict = truth(value)
            except OverBudget:
                raise
            except Problem:
                if found is None:
                    raise
                continue  # had the unknown decided, this operand would never have been looked at
            if isinstance(verdict, Unknown):
                found = found or verdict
            elif verdict is decides:
                if found is None:
                    return value
                if isinstance(value, bool):
                    return value
        return value if found is None else found

    def _unaryop(self, node: ast.UnaryOp, bound: Bound) -> Any:
        value = self.visit(node.operand, bound)
        if isinstance(value, Unknown):
            return value
        if isinstance(node.op, ast.Not):
            return not truth(value)
        if not isinstance(value, (int, float)):
            raise Problem(f"`{self.parsed.segment(node)}` needs a number, not {a_kind(value)}")
        return checked(-value if isinstance(node.op, ast.USub) else +value)

    def _ifexp(self, node: ast.IfExp, bound: Bound) -> Any:
        verdict = truth(self.visit(node.test, bound))
        if isinstance(verdict, Unknown):
            return verdict
        return self.visit(node.body if verdict else node.orelse, bound)

    def _compare(self, node: ast.Compare, bound: Bound) -> Any:
        """A chain `a < b < c` is the conjunction of its parts; it stops at the first that is false."""
        left = self.visit(node.left, bound)
        found: Unknown | None = None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            try:
                right = self.visit(right_node, bound)
                verdict = compare(op, left, right, self.budget)
            except OverBudget:
                raise
            except Problem:
                if found is None:
                    raise
                return found
            if isinstance(verdict, Unknown):
                found = found or verdict
            elif not verdict:
                return False
            left = right
        return True if found is None else found

    def _binop(self, node: ast.BinOp, bound: Bound) -> Any:
        left, right = self.visit(node.left, bound), self.visit(node.right, bound)
        for value in (left, right):
            if isinstance(value, Unknown):
                return value
        return arithmetic(node.op, left, right, self.budget)

    # functions ---------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, bound: Bound) -> Any:
        assert isinstance(node.func, ast.Name)
        value = self._apply(node.func.id, node, bound)
        if node is not self.parsed.tree:
            self.note(node, value)
        return value

    def _apply(self, name: str, node: ast.Call, bound: Bound) -> Any:
        if name in ("any", "all"):
            return self.quantified(name, node.args[0], bound)
        args = [self._argument(arg, bound) for arg in node.args]
        if name == "known":
            return not isinstance(args[0], Unknown)
        if name == "default":
            return args[1] if args[0] is None or isinstance(args[0], Unknown) else args[0]
        if name == "get":
            return next((arg for arg in args[:2] if isinstance(arg, Unknown)), None) or get(self.budget, *args)
        if name == "len" and not isinstance(args[0], Unknown):
            return PLAIN["len"](self.budget, args[0])
        for arg in args:
            found = unknown_inside(arg, self.budget)
            if found is not None:
                return found
        if name == "env":
            return self._env(*args)
        if name == "tensor_diff":
            return self._tensor_diff(*args)
        if name in ("min", "max") and len(args) == 1 and args[0] in ([], ()) and self.from_host(node.args[0], bound):
            return self.nothing_seen(node.args[0])
        try:
            return checked(PLAIN[name](self.budget, *args))
        except (ArithmeticError, ValueError) as error:  # infinity and NaN cannot be rounded
            raise Problem(f"`{name}`: {error}") from error

    def _argument(self, node: ast.expr, bound: Bound) -> Any:
        return self.comprehended(node, node.elt, bound) if isinstance(node, ast.GeneratorExp) else self.visit(node, bound)

    def _env(self, name: Any, fallback: Any = None) -> Any:
        environment = self.scope.get(ENV, {})
        if isinstance(name, str) and name in environment:
            return environment[name]
        if fallback is None:
            raise Problem(f"the environment variable {short(name)} is not set: set it, or write `env({short(name)}, 'default')`")
        return fallback

    def _tensor_diff(self, a: Any, b: Any, atol: Any = 0.0, rtol: Any = 0.0) -> Any:
        for value in (a, b):
            if not isinstance(value, str):
                raise Problem(f"`tensor_diff` takes two files of the run folder, not {a_kind(value)}")
        for value in (atol, rtol):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise Problem(f"a tolerance of `tensor_diff` is a number from 0 on, not {a_kind(value)}")
        if TENSOR_DIFF not in self.scope:
            raise Problem("`tensor_diff` reads files of a run, and there is no run here")
        return self.scope[TENSOR_DIFF](a, b, float(atol), float(rtol))


def _missing(what: str, key: Any, there: list[Any]) -> str:
    """`vars` has no key `tops`; there are: …; did you mean …?"""
    if not there:
        return f"{what} `{key}`: it is empty"
    listed = ", ".join(f"`{name}`" for name in there[:12]) + (f" and {len(there) - 12} more" if len(there) > 12 else "")
    near = nearest(str(key), there)
    return f"{what} `{key}`; there {'is' if len(there) == 1 else 'are'}: {listed}" + (f"; did you mean `{near}`?" if near else "")
