"""Finding the place of a probe: the function by its qualified name, the statement by its normalised source.

Every miss is a problem that names what is near; nothing is ever guessed.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Union

import msgspec

from runbook.model.diagnostic import Diagnostic, Span

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody")
_SAME = 0.86
"""Likeness (difflib ratio) from which a statement is called the same one, changed."""
_TAILS = ("", "\n    pass", " pass", "\n    case _: pass", "\n    pass\nfinally:\n    pass")
"""What makes a statement of a compound header."""
_NO_EXIT = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_COMPILERS = ("jit", "script", "script_method", "njit", "vectorize", "guvectorize", "cfunc", "kernel")
"""Last parts of decorator names that read the function's source or bytecode and run something else."""


class Place(msgspec.Struct, frozen=True):
    """A statement of a function, and on which side of it the probe goes."""

    function: Function
    statement: ast.stmt
    after: bool


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements directly below a node. Expressions hold none, so that a walk over these is cheap."""
    for key in _BLOCKS:
        yield getattr(node, key, None) or []
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def scopes(tree: ast.Module) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """All functions and classes with their qualified names, `<locals>` left out, in the order of the file."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
        for child in (statement for block in blocks(node) for statement in block):
            if isinstance(child, _SCOPES):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    return walk(tree, "")


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """All functions with their qualified names."""
    return ((name, node) for name, node in scopes(tree) if isinstance(node, _FUNCTIONS))


def own_statements(function: Function) -> list[ast.stmt]:
    """Statements of the function itself, at any depth of blocks, without those of nested functions and classes."""
    found: list[ast.stmt] = []

    def walk(node: ast.AST) -> None:
        for child in (statement for block in blocks(node) for statement in block):
            found.append(child)
            if not isinstance(child, _SCOPES):
                walk(child)

    walk(function)
    return sorted(found, key=lambda statement: (statement.lineno, statement.col_offset))


def header(statement: ast.stmt) -> str:
    """Normalised source; of a compound statement its first line only, decorators left out."""
    if not hasattr(statement, "body") and not isinstance(statement, ast.Match):
        return ast.unparse(statement)
    fields = {name: value for name, value in ast.iter_fields(statement)}
    fields.update({name: [] for name in ("orelse", "finalbody", "decorator_list", "handlers") if name in fields})
    fields.update({"body": [ast.Pass()]} if "body" in fields else {"cases": []})
    return ast.unparse(ast.copy_location(type(statement)(**fields), statement)).splitlines()[0]


def read_anchor(text: str) -> str | None:
    """The normalised form of an anchor, of several lines when it has a body of its own; None when it is not one statement."""
    plain = textwrap.dedent(text).strip()
    plain = plain[2:] if plain.startswith("elif ") else plain
    for tail in _TAILS:
        try:
            body = ast.parse(plain + tail).body
        except (SyntaxError, ValueError):
            continue
        if len(body) != 1:
            return None
        return header(body[0]) if tail else ast.unparse(body[0])
    return None


class Index:
    """The functions of a file and the normalised statements of each, worked out once."""

    def __init__(self, tree: ast.Module, path: str) -> None:
        self.path = path
        self._named: dict[str, list[Function]] = {}
        self._classes: set[str] = set()
        for name, node in scopes(tree):
            if isinstance(node, ast.ClassDef):
                self._classes.add(node.name)
            else:
                self._named.setdefault(name, []).append(node)
        self._statements: dict[Function, list[tuple[str, ast.stmt]]] = {}

    def statements(self, function: Function) -> list[tuple[str, ast.stmt]]:
        """(header, statement) of the function's own statements."""
        if function not in self._statements:
            self._statements[function] = [(header(statement), statement) for statement in own_statements(function)]
        return self._statements[function]

    def find(self, at: str, anchor: str, side: str) -> Place | Diagnostic:
        """Where a probe goes. side: entry, exit, after or before; `anchor` is empty for entry and exit."""
        wanted = at.replace(".<locals>", "")
        candidates = [function for function in self._named.get(wanted, ()) if not _is_overload(function)]
        if not candidates:
            return self._unknown_function(wanted)
        line = candidates[0].lineno
        compiled = [name for function in candidates for name in _compilers(function)]
        if compiled:
            summary = f"`{wanted}` is compiled by `@{compiled[0]}`: Python in it does not run"
            return self._problem("compiled-function", line, summary, "put the probe into the function that calls it")
        if side not in ("entry", "exit"):
            return self._find_statement(candidates, wanted, anchor, side)
        if len(candidates) > 1:
            return self._several(f"`{wanted}` is defined", candidates, "name a statement of the one you mean with `after:`")
        return _entry(candidates[0])

    def _find_statement(self, candidates: list[Function], wanted: str, anchor: str, side: str) -> Place | Diagnostic:
        form = read_anchor(anchor)
        if form is None:
            hint = "write one whole statement, or the first line of a compound one, as in `if x is None:`"
            return self._problem("anchor-not-a-statement", candidates[0].lineno, f"`{anchor.strip()}` is not one Python statement", hint)
        rows = [(text, node, function) for function in candidates for text, node in self.statements(function)]
        hits = [(node, function) for text, node, function in rows if _is_form(node, text, form)]
        if not hits:
            return self._missing(wanted, form, [(text, node) for text, node, _ in rows], candidates[0].lineno)
        if len(hits) > 1:
            return self._several(f"`{form}` stands in `{wanted}`", [node for node, _ in hits], "choose a statement that is there once")
        statement, function = hits[0]
        if side == "after" and isinstance(statement, _NO_EXIT):
            return self._problem("unreachable", statement.lineno, f"nothing runs after `{form}`", "write `before:` instead of `after:`")
        return Place(function, statement, side == "after")

    def _missing(self, wanted: str, form: str, rows: list[tuple[str, ast.stmt]], line: int) -> Diagnostic:
        for name, nested in self._named.items():
            if name.startswith(wanted + ".") and any(form == text for function in nested for text, _ in self.statements(function)):
                return self._problem(
                    "anchor-missing", line, f"`{form}` is not in `{wanted}` itself", f"it is in `{name}`: write `at: {name}`"
                )
        ranked = sorted(((_likeness(text, form), text, node.lineno) for text, node in rows), key=lambda row: (-row[0], row[2]))
        nearest = [(text, number) for ratio, text, number in ranked[:3] if ratio > 0.4]
        listed = "; ".join(f"line {number}: `{text}`" for text, number in nearest) or "nothing in it is like it"
        summary = f"`{form}` is not in `{wanted}`; nearest: {listed}"
        alike = [(text, number) for ratio, text, number in ranked if ratio >= _SAME]
        if len(alike) == 1:
            text, number = alike[0]
            hint = f"line {number} looks like the same statement, changed: if it is the one you mean, write `{text}`"
            return self._problem("anchor-missing", number, summary, hint)
        return self._problem("anchor-missing", nearest[0][1] if nearest else line, summary, "copy the statement from the file")

    def _unknown_function(self, wanted: str) -> Diagnostic:
        names, last = list(self._named), wanted.rsplit(".", 1)[-1]
        if last in self._classes:
            return self._problem(
                "function-missing", 1, f"`{wanted}` is a class, not a function", f"name a method, as in `{wanted}.forward`"
            )
        near = [name for name in names if name.rsplit(".", 1)[-1] == last] + difflib.get_close_matches(wanted, names, n=5, cutoff=0.5)
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys(near[:5]))
        hint = f"near: {listed}" if listed else "the file has no function of a name like it"
        return self._problem("function-missing", 1, f"there is no function `{wanted}`", hint)

    def _several(self, what: str, nodes: Sequence[ast.stmt], hint: str) -> Diagnostic:
        lines = [node.lineno for node in nodes]
        return self._problem("not-unique", lines[0], f"{what} {len(lines)} times: lines {', '.join(map(str, lines))}", hint)

    def _problem(self, code: str, line: int, summary: str, hint: str) -> Diagnostic:
        return Diagnostic(code=code, summary=summary, span=Span(self.path, line, 1), hint=hint)


def _is_form(statement: ast.stmt, text: str, form: str) -> bool:
    """An anchor with a body must be the whole statement, else the header is enough."""
    return (ast.unparse(statement) if "\n" in form else text) == form


def _likeness(text: str, form: str) -> float:
    return difflib.SequenceMatcher(None, text, form).ratio()


def _entry(function: Function) -> Place:
    first = function.body[0]
    if not is_docstring(first):
        return Place(function, first, False)
    return Place(function, first, True) if len(function.body) == 1 else Place(function, function.body[1], False)


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a first statement is only text."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _is_overload(function: Function) -> bool:
    return any(_dotted(mark).rsplit(".", 1)[-1] == "overload" for mark in function.decorator_list)


def _compilers(function: Function) -> list[str]:
    names = [_dotted(mark.func if isinstance(mark, ast.Call) else mark) for mark in function.decorator_list]
    return [name for name in names if name.rsplit(".", 1)[-1] in _COMPILERS]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
