"""Where a class has been constructed: a statement at every way out of its `__init__` that is not an exception. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Union

from runbook.model.diagnostic import Diagnostic, Span
from runbook.probes.anchors import own_statements, scopes
from runbook.probes.block import constructed
from runbook.probes.source import SAME_LINE, Insertion, Source, after_line
from runbook.probes.spec import Probe

_METHODS = ("__init__", "__post_init__")
_ENDS = (ast.Return, ast.Raise)
_FIRST = -1
"""Before the probes that go in at the same place."""


def constructors(source: Source, probes: Sequence[Probe], name: str, path: str) -> list[Union[Insertion, Diagnostic]]:
    """What goes in for each class that a probe names as `alive`, or why it cannot."""
    classes = {name: node for name, node in scopes(source.tree) if isinstance(node, ast.ClassDef)} if constructed(probes) else {}
    found: list[Union[Insertion, Diagnostic]] = []
    for number, wanted in enumerate(constructed(probes)):
        node = classes.get(wanted)
        method = None if node is None else _constructor(node)
        if node is None:
            found.append(_problem(path, 1, f"there is no class `{wanted}`", "name a class that this file defines"))
        elif method is None:
            hint = "name a class that has one; a subclass of it counts as well"
            found.append(_problem(path, node.lineno, f"`{wanted}` has no `__init__` of its own to tell that one was built", hint))
        else:
            found += _insertions(source, method, f"{name}.built[{number}]({_self(method)})")
    return found


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    """The last definition counts; one without arguments cannot be handed an object."""
    methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
    return next((methods[name] for name in _METHODS if name in methods and _self(methods[name])), None)


def _self(method: ast.FunctionDef) -> str:
    given = [*method.args.posonlyargs, *method.args.args]
    return given[0].arg if given else f"{method.args.vararg.arg}[0]" if method.args.vararg else ""


def _insertions(source: Source, method: ast.FunctionDef, text: str) -> Iterator[Insertion]:
    for statement in own_statements(method):
        if isinstance(statement, ast.Return):
            yield Insertion(source.start(statement), SAME_LINE, _FIRST, f"{text}; ")
    last = method.body[-1]
    if isinstance(last, _ENDS):
        return
    start, end = source.start(last), source.end(last)
    if source.begins_line(start):
        yield after_line(source, source.logical_stop(end), source.indent(start), text, _FIRST)
    else:
        yield Insertion(end, SAME_LINE, _FIRST, f"; {text}")


def _problem(path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code="class-missing", summary=summary, span=Span(path, line, 1), hint=hint)
