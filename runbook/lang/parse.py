"""Expression text to a checked syntax tree: a subset of Python, by a whitelist over `ast`.

Anything outside the subset is a `ParseProblem` that names the allowed way. `true`, `false` and `null` are read as Python's
`True`, `False` and `None`. Offsets count characters of the source.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from runbook.lang import hints
from runbook.lang.signatures import ARITY
from runbook.lang.tokens import MAX_SOURCE

MAX_DEPTH = 40
MAX_INT = 2**63
LITERALS = {"true": True, "false": False, "null": None}
_FILE = "<expression>"

# `search('\d+', x)` means what it says; by file name, so that no other module's warnings are touched.
warnings.filterwarnings("ignore", category=SyntaxWarning, module=_FILE)
warnings.filterwarnings("ignore", category=DeprecationWarning, module=_FILE)

Bound = frozenset[str]
Comprehension = ast.ListComp | ast.DictComp | ast.GeneratorExp

_PLAIN = (ast.List, ast.Tuple, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.Compare, ast.Slice, ast.Subscript)
_OPERATORS = (
    *(ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
)
_CONSTANTS = (str, int, float, bool, type(None))
_TAKES_ITEMS = frozenset({"any", "all", "sum", "min", "max", "sorted", "len"})


class ParseProblem(NamedTuple):
    """Why a source is no expression, what to write instead, and which of its characters are meant."""

    summary: str
    hint: str | None
    offset: int = 0
    length: int = 0


class Reference(NamedTuple):
    """A name and the constant path behind it: `steps.chat.hits[0].x` is ("steps", ("chat", "hits", 0, "x")).

    A path ends at the first part that is not constant. Names bound by a comprehension are no references.
    """

    root: str
    path: tuple[str | int, ...]
    offset: int
    length: int


class Parsed(NamedTuple):
    """A checked expression. `calls` are the functions it uses; `line` is the source stripped and on one line."""

    source: str
    references: tuple[Reference, ...]
    calls: tuple[str, ...]
    line: str
    tree: ast.expr

    def segment(self, node: ast.expr) -> str:
        """The text of a node."""
        start, end = _extent(self.line, node)
        return self.line[start:end]


@functools.lru_cache(maxsize=4096)
def parse(source: str) -> Parsed | ParseProblem:
    """Check a bare expression, without the `${{ }}` around it. Never raises."""
    if len(source) > MAX_SOURCE:
        return ParseProblem(f"the expression has {len(source)} characters, more than {MAX_SOURCE}", "split it with `vars` or a `set` step")
    if not source.strip():
        return ParseProblem("the expression is empty", "write for example `${{ vars.model }}`", 0, len(source))
    # One line without blanks in front: `ast` would call those an indentation, and its columns are then offsets.
    pad = len(source) - len(source.lstrip())
    line = source.replace("\r", " ").replace("\n", " ").strip()
    try:
        tree = ast.parse(line, _FILE, mode="eval").body
    except SyntaxError as error:
        summary, hint, offset = hints.syntax_problem(line, error)
        return ParseProblem(summary, hint, pad + offset, 1)
    except (ValueError, RecursionError, MemoryError):  # NUL, lone surrogates, integers of thousands of digits; nesting
        return ParseProblem("the expression cannot be read", "it has a control character, a huge number, or too many nested parts")
    try:
        checker = _Checker(line)
        checker.check(tree, frozenset(), 0)
        _check_rest(source, line, tree)
    except _Refused as refused:
        return ParseProblem(refused.summary, refused.hint, pad + refused.offset, refused.length)
    references = tuple(Reference(ref.root, ref.path, ref.offset + pad, ref.length) for ref in checker.references)
    return Parsed(source, references, tuple(dict.fromkeys(checker.calls)), line, tree)


class _Refused(Exception):
    def __init__(self, summary: str, hint: str, offset: int, length: int) -> None:
        super().__init__(summary)
        self.summary, self.hint, self.offset, self.length = summary, hint, offset, length


def _extent(line: str, node: ast.AST) -> tuple[int, int]:
    """Character offsets of a node; `ast` counts bytes of UTF-8."""
    start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", len(line))
    if line.isascii():
        return start, end
    data = line.encode()
    return len(data[:start].decode(errors="ignore")), len(data[:end].decode(errors="ignore"))


def _check_rest(source: str, line: str, tree: ast.expr) -> None:
    """Refuse what `ast` drops or would change: a comment after the expression, line breaks inside a text."""
    end = _extent(line, tree)[1]
    if line[end:].strip(" )"):
        raise _Refused("comments are not part of the language", "write the comment after the YAML value", end, len(line) - end)
    if any(mark in line for mark in ("'''", '"""')) and "\n" in source:
        raise _Refused("a text over several lines is not part of the language", "write `\\n` in the text", 0, len(line))


class _Checker:
    """Walks the tree once: refuses what is not in the subset, collects references and calls."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.references: list[Reference] = []
        self.calls: list[str] = []

    def refuse(self, node: ast.AST, summary: str, hint: str) -> _Refused:
        start, end = _extent(self.line, node)
        return _Refused(summary, hint, start, end - start)

    def check(self, node: ast.AST, bound: Bound, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._too_deep(node)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and self._chain(node, bound, depth):
            return
        handler = getattr(self, f"_check_{type(node).__name__.lower()}", None)
        if handler is not None:
            handler(node, bound, depth)
        elif isinstance(node, _PLAIN):
            self._children(node, bound, depth)
        elif not isinstance(node, _OPERATORS):
            raise self.refuse(node, *hints.REFUSED.get(type(node), REFUSED_DEFAULT))

    def _too_deep(self, node: ast.AST) -> _Refused:
        return self.refuse(node, f"the expression is nested deeper than {MAX_DEPTH} levels", "split it with `vars` or a `set` step")

    def _children(self, node: ast.AST, bound: Bound, depth: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.operator, ast.unaryop, ast.cmpop, ast.boolop)) and type(child) in hints.REFUSED:
                raise self.refuse(node, *hints.REFUSED[type(child)])
            if not isinstance(child, (ast.expr_context, *_OPERATORS)):
                self.check(child, bound, depth + 1)

    # names -------------------------------------------------------------------------------------------------------

    def _chain(self, node: ast.expr, bound: Bound, depth: int) -> bool:
        """Note `root.a[0].b` as one reference. False when the chain does not start at a free name."""
        parts: list[str | int] = []
        current: ast.expr = node
        inner: list[ast.expr] = []
        longest: ast.expr = node
        while isinstance(current, (ast.Attribute, ast.Subscript)):
            depth += 1
            if depth > MAX_DEPTH:
                raise self._too_deep(node)
            key = self._key(current)
            if key is None:
                parts.clear()
                longest = current.value
                inner.append(current.slice)  # type: ignore[union-attr]
            else:
                parts.append(key)
            current = current.value
        if isinstance(current, ast.Name):
            self._as_written(current, current.id)
        if not isinstance(current, ast.Name) or current.id in bound or current.id in LITERALS:
            return False
        if current.id in ARITY:
            raise self.refuse(current, f"`{current.id}` is a function", f"call it: `{current.id}(…)`")
        if current.id.startswith("_"):
            raise self.refuse(current, f"no name begins with `_`: `{current.id}`", "names are vars, steps, secrets, item, host, run")
        start, end = _extent(self.line, longest)
        self.references.append(Reference(current.id, tuple(reversed(parts)), start, end - start))
        for part in inner:
            self.check(part, bound, depth + 1)
        return True

    def _key(self, node: ast.Attribute | ast.Subscript) -> str | int | None:
        """The constant key of one step of a chain; None for a computed one or a slice."""
        if isinstance(node, ast.Attribute):
            self._as_written(node, node.attr)
            if node.attr.startswith("_"):
                raise self.refuse(node, f"no attribute begins with `_`: `{node.attr}`", f"write `['{node.attr}']` for a key of a mapping")
            return node.attr
        try:
            key = ast.literal_eval(node.slice)
        except (ValueError, TypeError, SyntaxError):
            return None
        return key if isinstance(key, (str, int)) and not isinstance(key, bool) else None

    def _as_written(self, node: ast.expr, name: str) -> None:
        """Python folds some letters of a name into others; the keys of a mapping are not folded."""
        end = _extent(self.line, node)[1]
        if not self.line[:end].endswith(name):
            raise self.refuse(node, f"the name `{name}` has letters with another spelling", "write `['…']` for this key")

    def _check_name(self, node: ast.Name, bound: Bound, depth: int) -> None:
        """A bound name or a literal: nothing to note."""

    def _check_attribute(self, node: ast.Attribute, bound: Bound, depth: int) -> None:
        self._key(node)
        self.check(node.value, bound, depth + 1)

    # values ------------------------------------------------------------------------------------------------------

    def _check_constant(self, node: ast.Constant, bound: Bound, depth: int) -> None:
        if not isinstance(node.value, _CONSTANTS):
            word = type(node.value).__name__
            raise self.refuse(node, f"a value of type {word} is not part of the language", "write text, a number, true, false or null")
        if isinstance(node.value, int) and node.value > MAX_INT:
            raise self.refuse(node, "the integer is larger than 2^63", "write it as text")
        if isinstance(node.value, float) and node.value in (float("inf"),):
            raise self.refuse(node, "the number is too large", "write a smaller one")

    def _check_dict(self, node: ast.Dict, bound: Bound, depth: int) -> None:
        for key in node.keys:
            if key is None:
                raise self.refuse(node, "`**` is not part of the language", "write the keys")
            self.check(key, bound, depth + 1)
        for value in node.values:
            self.check(value, bound, depth + 1)

    def _check_call(self, node: ast.Call, bound: Bound, depth: int) -> None:
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            begin, end = _extent(self.line, node.func.value)[1], _extent(self.line, node.func)[1]
            summary = f"methods are not part of the language: `.{name}()`"
            raise _Refused(summary, hints.method_hint(name, ARITY), begin, end - begin)
        if not isinstance(node.func, ast.Name) or node.func.id in bound:
            raise self.refuse(node, "only functions can be called", "functions are: " + ", ".join(sorted(ARITY)))
        name = node.func.id
        if name not in ARITY:
            raise self.refuse(node.func, f"unknown function `{name}`", hints.call_hint(name, ARITY))
        if node.keywords:
            raise self.refuse(node, f"`{name}` takes no named arguments", f"write {_usage(name)}")
        least, most = ARITY[name]
        if not least <= len(node.args) <= most:
            raise self.refuse(node, f"`{name}` takes {_count(least, most)}, not {len(node.args)}", f"write {_usage(name)}")
        self.calls.append(name)
        for arg in node.args:
            if isinstance(arg, ast.GeneratorExp) and name in _TAKES_ITEMS:
                self._comprehension(arg, [arg.elt], bound, depth)
            else:
                self.check(arg, bound, depth + 1)

    # comprehensions ----------------------------------------------------------------------------------------------

    def _check_listcomp(self, node: ast.ListComp, bound: Bound, depth: int) -> None:
        self._comprehension(node, [node.elt], bound, depth)

    def _check_dictcomp(self, node: ast.DictComp, bound: Bound, depth: int) -> None:
        self._comprehension(node, [node.key, node.value], bound, depth)

    def _check_generatorexp(self, node: ast.GeneratorExp, bound: Bound, depth: int) -> None:
        raise self.refuse(node, "a generator is not a value", "write it as a list: `[x for x in items]`")

    def _comprehension(self, node: Comprehension, results: list[ast.expr], bound: Bound, depth: int) -> None:
        for part in node.generators:
            if part.is_async:
                raise self.refuse(node, "`async` is not part of the language", "write `for`")
            self.check(part.iter, bound, depth + 1)
            bound = bound | set(self._targets(part.target))
            for condition in part.ifs:
                self.check(condition, bound, depth + 1)
        for result in results:
            self.check(result, bound, depth + 1)

    def _targets(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Tuple):
            for item in node.elts:
                yield from self._targets(item)
        elif not isinstance(node, ast.Name) or node.id.startswith("_") or node.id in LITERALS or node.id in ARITY:
            raise self.refuse(node, "this cannot name an item", "write a plain name: `for hit in …`")
        else:
            yield node.id


REFUSED_DEFAULT = ("this is not part of the language", "use names, literals, comparisons, `and or not in`, arithmetic and functions")


def _usage(name: str) -> str:
    least, most = ARITY[name]
    args = ["a", "b", "c"]
    return f"`{name}({', '.join(args[:least])}{'…' if most > least else ''})`"


def _count(least: int, most: int) -> str:
    if least == most:
        return "1 argument" if least == 1 else f"{least} arguments"
    return f"at least {least} arguments" if most > 9 else f"{least} to {most} arguments"
