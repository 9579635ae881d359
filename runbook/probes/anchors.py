"""Finding the place of a probe: the function by its qualified name, the statement by its normalised source.

Every miss is a problem that names what is near; nothing is ever guessed.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator
from typing import Union

import msgspec

from runbook.model.diagnostic import Diagnostic, Span

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_SAME = 0.86
"""Likeness (difflib ratio) from which a statement is called the same one, changed."""
_TAILS = ("", "\n    pass", " pass", "\n    case _: pass", "\n    pass\nfinally:\n    pass")
"""What makes a statement of a compound header."""
_NO_EXIT = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_COMPILERS = ("jit", "script", "njit", "kernel")
"""Last parts of decorator names that read the function's source or bytecode and run something else."""


class Place(msgspec.Struct, frozen=True):
    """A statement of a function, and on which side of it the probe goes."""

    function: Function
    statement: ast.stmt
    after: bool


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """All functions with their qualified names, `<locals>` left out, in the order of the file."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _SCOPES):
                name = f"{prefix}{child.name}"
                if isinstance(child, _FUNCTIONS):
                    yield name, child
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    return walk(tree, "")


def own_statements(function: Function) -> list[ast.stmt]:
    """Statements of the function itself, at any depth of blocks, without those of nested functions and classes."""
    found: list[ast.stmt] = []

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                found.append(child)
            if not isinstance(child, (*_SCOPES, ast.expr)):
                walk(child)

    for statement in function.body:
        found.append(statement)
        if not isinstance(statement, _SCOPES):
            walk(statement)
    return found


def header(statement: ast.stmt) -> str:
    """Normalised source; of a compound statement its first line only, decorators left out."""
    if not hasattr(statement, "body") and not isinstance(statement, ast.Match):
        return ast.unparse(statement)
    fields = {name: value for name, value in ast.iter_fields(statement)}
    fields.update({name: [] for name in ("orelse", "finalbody", "decorator_list", "handlers") if name in fields})
    fields.update({"body": [ast.Pass()]} if "body" in fields else {"cases": []})
    return ast.unparse(ast.copy_location(type(statement)(**fields), statement)).splitlines()[0]


def read_anchor(text: str) -> str | None:
    """The normalised form of an anchor; None when it is not one statement."""
    plain = textwrap.dedent(text).strip()
    plain = plain[2:] if plain.startswith("elif ") else plain
    for tail in _TAILS:
        try:
            body = ast.parse(plain + tail).body
        except (SyntaxError, ValueError):
            continue
        return header(body[0]) if len(body) == 1 else None
    return None


def find(tree: ast.Module, at: str, anchor: str, side: str, path: str) -> Place | Diagnostic:
    """Where a probe goes. side: entry, after or before; `anchor` is empty for entry."""
    wanted = at.replace(".<locals>", "")
    named = list(functions(tree))
    candidates = [function for name, function in named if name == wanted and not _is_overload(function)]
    if not candidates:
        return _unknown_function(wanted, [name for name, _ in named], tree, path)
    compiled = [name for function in candidates for name in _compilers(function)]
    if compiled:
        hint = "put the probe into the function that calls it"
        return _problem(
            "compiled-function", path, candidates[0].lineno, f"`{wanted}` is compiled by `@{compiled[0]}`: Python in it does not run", hint
        )
    if side == "entry":
        if len(candidates) > 1:
            return _several(path, f"`{wanted}` is defined", candidates, "name a statement of the one you mean with `after:`")
        return _entry(candidates[0])
    return _find_statement(candidates, named, wanted, anchor, side, path)


def _find_statement(
    candidates: list[Function], named: list[tuple[str, Function]], wanted: str, anchor: str, side: str, path: str
) -> Place | Diagnostic:
    form = read_anchor(anchor)
    line = candidates[0].lineno
    if form is None:
        hint = "write one whole statement, or the first line of a compound one, as in `if x is None:`"
        return _problem("anchor-not-a-statement", path, line, f"`{anchor.strip()}` is not one Python statement", hint)
    texts = [(header(statement), statement, function) for function in candidates for statement in own_statements(function)]
    hits = [(statement, function) for text, statement, function in texts if text == form]
    if not hits:
        inside = [name for name, function in named if name.startswith(wanted + ".") and form in map(header, own_statements(function))]
        return _missing(path, wanted, form, [(text, statement) for text, statement, _ in texts], inside, line)
    if len(hits) > 1:
        return _several(
            path, f"`{form}` stands in `{wanted}`", [statement for statement, _ in hits], "choose a statement that is there once"
        )
    statement, function = hits[0]
    if side == "after" and isinstance(statement, _NO_EXIT):
        return _problem("unreachable", path, statement.lineno, f"nothing runs after `{form}`", "write `before:` instead of `after:`")
    return Place(function, statement, side == "after")


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


def _missing(path: str, wanted: str, form: str, texts: list[tuple[str, ast.stmt]], inside: list[str], line: int) -> Diagnostic:
    if inside:
        return _problem(
            "anchor-missing", path, line, f"`{form}` is not in `{wanted}` itself", f"it is in `{inside[0]}`: write `at: {inside[0]}`"
        )
    ranked = sorted(((difflib.SequenceMatcher(None, text, form).ratio(), text, node) for text, node in texts), key=lambda row: -row[0])
    nearest = [(text, node.lineno) for ratio, text, node in ranked[:3] if ratio > 0.4]
    listed = "; ".join(f"line {number}: `{text}`" for text, number in nearest) or "nothing in it is like it"
    summary = f"`{form}` is not in `{wanted}`; nearest: {listed}"
    alike = [row for row in ranked if row[0] >= _SAME]
    if len(alike) == 1:
        same = f"line {alike[0][2].lineno} looks like the same statement, changed: if it is the one you mean, write `{alike[0][1]}`"
        return _problem("anchor-missing", path, alike[0][2].lineno, summary, same)
    return _problem("anchor-missing", path, nearest[0][1] if nearest else line, summary, "copy the statement from the file")


def _unknown_function(wanted: str, names: list[str], tree: ast.Module, path: str) -> Diagnostic:
    if any(isinstance(node, ast.ClassDef) and node.name == wanted.rsplit(".", 1)[-1] for node in ast.walk(tree)):
        hint = f"name one of its methods, as in `{wanted}.forward`"
        return _problem("function-missing", path, 1, f"`{wanted}` is a class, not a function", hint)
    last = wanted.rsplit(".", 1)[-1]
    near = [name for name in names if name.rsplit(".", 1)[-1] == last] + difflib.get_close_matches(wanted, names, n=5, cutoff=0.5)
    listed = ", ".join(f"`{name}`" for name in dict.fromkeys(near[:5]))
    return _problem(
        "function-missing",
        path,
        1,
        f"there is no function `{wanted}`",
        f"near: {listed}" if listed else "the file has no function of that kind",
    )


def _several(path: str, what: str, nodes: list[ast.stmt] | list[Function], hint: str) -> Diagnostic:
    lines = [node.lineno for node in nodes]
    return _problem("not-unique", path, lines[0], f"{what} {len(lines)} times: lines {', '.join(map(str, lines))}", hint)


def _problem(code: str, path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, line, 1), hint=hint)
