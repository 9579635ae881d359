"""Lists item by item: comprehensions, and the quantifiers `any` and `all`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runbook.lang.functions import MAX_ITEMS, Budget, OverBudget, Problem
from runbook.lang.operators import truth
from runbook.lang.parse import Parsed
from runbook.lang.values import Unknown, a_kind, short

HOST_ROOT = "steps"
"""Lists below this name came from a host: when one is empty, nothing was seen."""
ITEMS_SHOWN = 3

Bound = dict[str, Any]
"""Names bound by comprehensions. Under "", which no author can write: those whose items came from a host."""


class Looked:
    """Was there any item to look at?"""

    any = False


class Items:
    """The part of the evaluator that goes through lists."""

    parsed: Parsed
    budget: Budget
    parts: dict[str, str]
    noting: bool

    def visit(self, node: ast.expr, bound: Bound) -> Any:
        """Evaluate a node."""
        raise NotImplementedError

    @staticmethod
    def text_key(key: Any) -> Any:
        """A key of a mapping that an expression makes."""
        if isinstance(key, (str, Unknown)):
            return key
        raise Problem(f"the keys of a mapping are text, not {short(key)}")

    def nothing_seen(self, node: ast.expr) -> Unknown:
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            node = node.generators[0].iter
        return Unknown(f"`{self.parsed.segment(node)}` is empty: there was nothing to look at")

    def from_host(self, node: ast.expr, bound: Bound) -> bool:
        """Does a value derive from what a step saw? Bound names carry it along in `bound`, under a name no author can write."""
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return any(self.from_host(part.iter, bound) for part in node.generators)
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return HOST_ROOT in names or bool(names & bound.get("", frozenset()))

    def _listcomp(self, node: ast.ListComp, bound: Bound) -> Any:
        return self.comprehended(node, node.elt, bound)

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp, result: ast.expr, bound: Bound) -> Any:
        items: list[Any] = []
        for inner in self._scopes(node.generators, self.visit(node.generators[0].iter, bound), bound):
            if isinstance(inner, Unknown):
                return inner
            items.append(self._quietly(result, inner))
            if len(items) > MAX_ITEMS:
                raise OverBudget(f"the list has more than {MAX_ITEMS} items")
        return items

    def _dictcomp(self, node: ast.DictComp, bound: Bound) -> Any:
        result: dict[str, Any] = {}
        for inner in self._scopes(node.generators, self.visit(node.generators[0].iter, bound), bound):
            if isinstance(inner, Unknown):
                return inner
            key = self.text_key(self._quietly(node.key, inner))
            if isinstance(key, Unknown):
                return key
            result[key] = self._quietly(node.value, inner)
        return result

    def _quietly(self, node: ast.expr, bound: Bound) -> Any:
        """Evaluate without noting operands: they would be those of some item."""
        before, self.noting = self.noting, False
        try:
            return self.visit(node, bound)
        finally:
            self.noting = before

    def _scopes(
        self, generators: list[ast.comprehension], value: Any, bound: Bound, looked: Looked | None = None
    ) -> Iterator[Bound | Unknown]:
        """The names of each item, nested loops unrolled; an Unknown where a list or a condition is one.

        `value` is the first list. `looked` learns whether any item was there at all, before the conditions.
        """
        part, *rest = generators
        if isinstance(value, Unknown):
            yield value
            return
        if not isinstance(value, (list, tuple, Mapping)):
            raise Problem(f"`{self.parsed.segment(part.iter)}` is {a_kind(value)}: `for` takes a list or a mapping")
        host = self.from_host(part.iter, bound)
        for item in value:
            self.budget.spend()
            if looked is not None and not rest:
                looked.any = True
            inner = dict(bound)
            self._bind(part.target, item, inner, host)
            kept: bool | Unknown = True
            for condition in part.ifs:
                kept = truth(self._quietly(condition, inner))
                if kept is not True:
                    break
            if isinstance(kept, Unknown):
                yield kept
            elif kept and rest:
                yield from self._scopes(rest, self._quietly(rest[0].iter, inner), inner, looked)
            elif kept:
                yield inner

    def _bind(self, target: ast.expr, item: Any, inner: Bound, host: bool) -> None:
        if isinstance(target, ast.Name):
            inner[target.id] = item
            hosts = inner.get("", frozenset())
            inner[""] = hosts | {target.id} if host else hosts - {target.id}
            return
        assert isinstance(target, ast.Tuple)
        if isinstance(item, Unknown):
            item = [item] * len(target.elts)
        if not isinstance(item, (list, tuple)) or len(item) != len(target.elts):
            raise Problem(f"an item is {a_kind(item)}, not a list of {len(target.elts)}: {short(item)}")
        for name, value in zip(target.elts, item, strict=True):
            self._bind(name, value, inner, host)

    def quantified(self, name: str, node: ast.expr, bound: Bound) -> Any:
        """`any` and `all`: the first item that decides ends it, an unknown item leaves it open, an empty list from a host too.

        A condition that drops every item of a list that was not empty: `any` is false, for all were looked at; `all` stays open.
        """
        decides = name == "any"
        each = isinstance(node, (ast.GeneratorExp, ast.ListComp))
        source = self.visit(node.generators[0].iter if each else node, bound)  # type: ignore[attr-defined]
        if isinstance(source, Unknown):
            return source
        found: Unknown | None = None
        count = 0
        looked = Looked()
        for value in self._item_values(node, source, bound, decides, looked) if each else self._plain_items(node, source):  # type: ignore[arg-type]
            count += 1
            verdict = truth(value)
            if isinstance(verdict, Unknown):
                found = found or verdict
            elif verdict is decides:
                return decides
        if count == 0 and (name == "all" or not looked.any) and self.from_host(node, bound):
            return self.nothing_seen(node)
        return found if found is not None else not decides

    def _plain_items(self, node: ast.expr, source: Any) -> Any:
        if not isinstance(source, (list, tuple)):
            raise Problem(f"`{self.parsed.segment(node)}` is {a_kind(source)}: a list is needed")
        self.budget.spend(len(source))
        return source

    def _item_values(
        self, node: ast.GeneratorExp | ast.ListComp, source: Any, bound: Bound, decides: bool, looked: Looked
    ) -> Iterator[Any]:
        """The values of a comprehension, one by one. Operands are noted for the one that decides, else for the first few."""
        first: list[tuple[int, Bound]] = []
        index = 0
        for inner in self._scopes(node.generators, source, bound, looked):
            if isinstance(inner, Unknown):
                yield inner
                continue
            if index < ITEMS_SHOWN:
                first.append((index, inner))
            value = self._quietly(node.elt, inner)
            if truth(value) is decides:
                self._note_item(node.elt, inner, index)
                yield value
                return
            index += 1
            yield value
        for at, names in first:
            self._note_item(node.elt, names, at)

    def _note_item(self, node: ast.expr, inner: Bound, index: int) -> None:
        """Evaluate once more, to note the operands that hang on the item: `h.width where h is …` reads as `h.width (item …)`."""
        if not self.noting:
            return
        outer, self.parts = self.parts, {}
        try:
            self.visit(node, inner)
        finally:
            noted, self.parts = self.parts, outer
        for source, text in noted.items():
            depends = any(re.search(rf"\b{re.escape(name)}\b", source) for name in inner if name)
            self.parts.setdefault(f"{source} (item {index})" if depends else source, text)
