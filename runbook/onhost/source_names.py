"""What the names of a file stand for, where all that binds them there says the same: a logger, random numbers, a plain value.

Kinds: plain (numbers, texts, containers of them), logger, chance (random numbers), event (of threading: events and locks), ring (memory of
no file), `module NAME`, `class NAME` of this very file; empty for anything else.
"""

import ast
from typing import Any, Dict, Iterator, List, Set, Tuple

from .source_tree import Source, chain

_MADE = {
    **dict.fromkeys(("getLogger", "get_logger", "init_logger", "Logger"), "logger"),
    **dict.fromkeys(("Random", "SystemRandom"), "chance"),
    **dict.fromkeys(("Event", "Lock", "RLock"), "event"),
}
_PLAIN = frozenset("str int float bool bytes".split())
_GIVES_PLAIN = frozenset("len int float str round bool ord".split())
_NUMBERS = frozenset("random randrange randint uniform gauss".split())
_CLOCKS = ("time.time", "time.monotonic", "time.perf_counter")
_EMPTY = frozenset("list dict set tuple bytearray deque".split())


class Names:
    """Of one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        classes = [one for one in source.parents if isinstance(one, ast.ClassDef)]
        self._classes = {one.name for one in classes}
        self._listens = any(chain(base).endswith(("Handler", "Filter", "Formatter")) for one in classes for base in one.bases)
        self._bound: Dict[str, List[Any]] = {}  # by name the values that it gets, as nodes, or their kinds
        self._told: Dict[str, Set[str]] = {}
        for name, value in self._bindings():
            self._bound.setdefault(name, []).append(value)

    def binds(self, name: str) -> bool:
        """Whether the file itself gives the name a meaning anywhere."""
        return name in self._bound or "*" in self._bound or bool(self._source.named(name))

    def function(self, name: str) -> Any:
        """The function of that name where nothing else in the file has it: it stands at the top, alone, and nothing is put around it."""
        known = self._source.named(name)
        alone = len(known) == 1 and self._source.parents[known[0]] is self._source.tree and not known[0].decorator_list
        return known[0] if alone and name not in self._bound and "*" not in self._bound else None

    def method(self, kind: str, name: str) -> Any:
        """The method of that name of a kind of object, where the class itself has it and nothing is put around it or in its place."""
        known = [one for one in self._source.named(name) if "class " + getattr(self._source.parents[one], "name", "") == kind]
        alone = len(known) == 1 and not known[0].decorator_list and "." + name not in self._bound
        return known[0] if alone else None

    def kind(self, node: Any) -> str:
        """Of a value, as it is written. An attribute counts on `self`, or on an object of a class of this file."""
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            own = owner in ("self", "cls") or self.kind(node.value).startswith("class ")
            return self._only("." + node.attr) if own and not self._source.named(node.attr) else ""
        if isinstance(node, ast.Name):
            return self._only(node.id)
        return self._of_value(node)

    def _only(self, name: str) -> str:
        kinds = self._kinds(name)
        only = next(iter(kinds)) if len(kinds) == 1 else ""
        return "" if only == "logger" and self._listens else only  # a handler of its own may do anything with a line

    def _kinds(self, name: str) -> Set[str]:
        """Of all that is bound to a name. What depends on itself is of no kind."""
        if name not in self._told:
            self._told[name] = {""}
            self._told[name] = {one if isinstance(one, str) else self._of_value(one) for one in self._bound.get(name, ())}
        return self._told[name]

    def _bindings(self) -> Iterator[Tuple[str, Any]]:
        told: Set[int] = set()
        for one in self._source.parents:
            for target, value in self._assigned(one):
                told.add(id(target))
                yield _key(target), value
            if isinstance(one, (ast.Import, ast.ImportFrom)):
                start = "%s." % one.module if isinstance(one, ast.ImportFrom) else ""
                yield from ((item.asname or item.name.partition(".")[0], "module " + start + item.name) for item in one.names)
            elif isinstance(one, ast.arg):
                yield one.arg, self._of_type(one.annotation)
            elif isinstance(one, ast.ExceptHandler):
                yield one.name or "", ""
        for one in self._source.parents:
            if isinstance(one, (ast.Name, ast.Attribute)) and not isinstance(one.ctx, ast.Load) and id(one) not in told:
                yield _key(one), ""

    def _assigned(self, one: Any) -> Iterator[Tuple[Any, Any]]:
        """What a plain assignment binds, and to what; of several side by side each."""
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, (ast.Name, ast.Attribute)):
            yield one.target, (self._of_value(one.value) if one.value is not None else "") or self._of_type(one.annotation)
        if isinstance(one, ast.AugAssign) and isinstance(one.target, (ast.Name, ast.Attribute)):
            yield one.target, one.value
        if isinstance(one, (ast.For, ast.comprehension)) and isinstance(one.target, ast.Name):
            yield one.target, "plain" if isinstance(one.iter, ast.Call) and chain(one.iter.func) == "range" else ""
        if not isinstance(one, ast.Assign) or len(one.targets) != 1:
            return
        target, value = one.targets[0], one.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = [(target.elts[at], value.elts[at]) for at in range(len(value.elts))]
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.GeneratorExp):
            pairs = [(left, value.elt) for left in target.elts]
        yield from ((left, right) for left, right in pairs if isinstance(left, (ast.Name, ast.Attribute)))

    def _of_value(self, value: Any) -> str:
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            return "plain" if all(self._of_value(one) == "plain" for one in value.elts) else ""
        if isinstance(value, (ast.BinOp, ast.BoolOp)):
            sides = value.values if isinstance(value, ast.BoolOp) else [value.left, value.right]
            return "plain" if all(self.kind(one) == "plain" for one in sides) else ""
        if isinstance(value, (ast.Constant, ast.JoinedStr)) or (isinstance(value, ast.Dict) and not value.keys):
            return "plain"
        return self._of_call(value) if isinstance(value, ast.Call) else ""

    def _of_call(self, call: ast.Call) -> str:
        name = chain(call.func).rpartition(".")[2]
        if isinstance(call.func, ast.Name) and name in _GIVES_PLAIN and not self.binds(name):
            return "plain"
        if chain(call.func) in _CLOCKS:
            return "plain" if self._only("time") == "module time" else ""
        if (
            isinstance(call.func, ast.Attribute)
            and name in _NUMBERS | {"choice"}
            and self.kind(call.func.value) in ("chance", "module random")
        ):
            return "plain" if name in _NUMBERS or all(self.kind(one) == "plain" for one in call.args) else ""
        if name == "mmap":
            first = call.args[0] if call.args else None
            nobodys = isinstance(first, ast.UnaryOp) and isinstance(first.op, ast.USub)
            return "ring" if nobodys and len(call.args) == 2 and not call.keywords else ""
        if name in _EMPTY and not call.args and not call.keywords:
            return "plain"
        if name in self._classes:
            return "class " + name
        made = self._source.named(name)
        if made:
            return "plain" if all(self._of_type(getattr(one, "returns", None)) == "plain" for one in made) else ""
        return _MADE.get(name, "")

    def _of_type(self, annotation: Any) -> str:
        if isinstance(annotation, ast.Subscript):
            return "plain" if chain(annotation.value) in _EMPTY and self._of_type(_inner(annotation)) == "plain" else ""
        name = chain(annotation).rpartition(".")[2] if annotation is not None else ""
        if name in self._classes:
            return "class " + name
        return "plain" if name in _PLAIN else _MADE.get(name, "")


def _inner(annotation: Any) -> Any:
    """What stands in the brackets of a type; Python 3.8 wraps it."""
    return annotation.slice.value if type(annotation.slice).__name__ == "Index" else annotation.slice


def _key(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else "." + str(node.attr)


def of(source: Source) -> Names:
    """Read once."""
    if source.names is None:
        source.names = Names(source)
    return source.names
