"""The body of a function inside `try … finally`, so that one probe sees every way out. Pure; only insertions are made.

    def f(x):                              def f(x):
        "doc"                                  "doc"
        if x:                                  try:
            return g(x)          ->             if x:
        h(x)                                        return _rb.out[0](( g(x)))
                                                h(x)
                                               except: _rb.failed(0); raise
                                               else: _rb.out[0](None)
                                               finally: _rb.left(0) and _rb.hit(0, …)

No frame is added, so `super()`, `locals()`, the caller's frame, and whether the function is a coroutine or a generator stay as they
are; a bare `raise` adds no line to a traceback. The body moves one column to the right: of each logical line the indentation grows
by one blank, and what lies inside a text that runs over several lines is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from runbook.probes.anchors import Function, is_docstring, own_statements
from runbook.probes.source import SAME_LINE, Insertion, Source, after_line

_TEXTS = (ast.JoinedStr, *((ast.TemplateStr,) if hasattr(ast, "TemplateStr") else ()))


class Exit(msgspec.Struct, frozen=True):
    """An exit probe: its function in the source, its number, and the statement that writes the hit."""

    function: Function
    number: int
    text: str


def wrap(source: Source, exits: Sequence[Exit], name: str) -> str:
    """The text with all these functions wrapped. They must be different ones, and none may lie inside another."""
    return source.insert([insertion for one in exits for insertion in _insertions(source, one, name)])


def rounds(exits: Sequence[Exit]) -> Iterator[list[Exit]]:
    """The probes in groups that can be put in at once; earlier ones end up innermost."""
    left = list(exits)
    while left:
        now: list[Exit] = []
        for one in left:
            if not any(_meet(one.function, other.function) for other in now):
                now.append(one)
        yield now
        left = [one for one in left if one not in now]


def _meet(one: Function, other: Function) -> bool:
    first, second = sorted((one, other), key=lambda function: function.lineno)
    return second.lineno <= (first.end_lineno or first.lineno)


def _insertions(source: Source, one: Exit, name: str) -> Iterator[Insertion]:
    function, out = one.function, f"{name}.out[{one.number}]"
    body = function.body[1:] if is_docstring(function.body[0]) else function.body
    tail = f"{name}.failed({one.number})", f"{out}(None)", one.text
    if not body:
        yield from _only_docstring(source, function.body[0], "; ".join(tail[1:]))
        return
    for statement in own_statements(function):
        if isinstance(statement, ast.Return):
            yield from _return(source, statement, out)
    indent, opening = _opening(source, function, body[0])
    yield from opening
    yield from _pushed(source, body)
    stop = source.logical_stop(source.end(body[-1]))
    lines = (f"except: {tail[0]}; raise", f"else: {tail[1]}", f"finally: {tail[2]}")
    yield after_line(source, stop, indent, (source.eol + indent).join(lines), 0)


def _only_docstring(source: Source, statement: ast.stmt, text: str) -> Iterator[Insertion]:
    start, end = source.start(statement), source.end(statement)
    if source.begins_line(start) and source.ends_line(end):
        yield after_line(source, source.line_stop(end), source.indent(start), text, 0)
    else:
        yield Insertion(end, SAME_LINE, 0, f"; {text}")


def _return(source: Source, statement: ast.Return, out: str) -> Iterator[Insertion]:
    """The value passes through a call that keeps it; a bare `return` has the call before it, as asynchronous generators need."""
    start = source.start(statement)
    if statement.value is None:
        yield Insertion(start, SAME_LINE, 1, f"{out}(None); ")
    else:
        yield Insertion(start + len("return"), SAME_LINE, 0, f" {out}((")
        yield Insertion(source.end(statement), SAME_LINE, 0, "))")


def _opening(source: Source, function: Function, first: ast.stmt) -> tuple[str, list[Insertion]]:
    """(indentation of the body, what goes before its first statement). A body in the line of its `def` gets lines of its own."""
    eol, start, leading = source.eol, source.start(first), source.start(function.body[0])
    if source.begins_line(start):
        indent = source.indent(start)
        return indent, [Insertion(source.line_start(start), 0, 0, f"{indent}try:{eol}")]
    if source.begins_line(leading):
        indent, moved = source.indent(leading), []
    else:
        indent = source.indent(source.start(function)) + " "
        moved = [Insertion(leading, SAME_LINE, -1, eol + indent)] if leading != start else []
    return indent, [*moved, Insertion(start, SAME_LINE, 0, f"{eol}{indent}try:{eol}{indent} ")]


def _pushed(source: Source, body: Sequence[ast.stmt]) -> Iterator[Insertion]:
    """One more blank in each line that may begin a statement. Inside brackets and behind a backslash it means nothing."""
    inside = {number for statement in body for number in _text_lines(statement)}
    first, last = source.line_of(source.start(body[0])), source.line_of(source.end(body[-1]))
    if not source.begins_line(source.start(body[0])):
        first += 1
    for number in range(first, last + 1):
        line = source.line(number)
        bare = line.lstrip(" \t\f")
        if bare and not bare.startswith("#") and number not in inside:
            yield Insertion(source.offset(number, 0) + len(line) - len(bare), SAME_LINE, 0, " ")


def _text_lines(node: ast.AST) -> Iterator[int]:
    """Lines that begin inside a text, where a blank would change it. What an f-string holds has no places of its own before 3.12."""
    if isinstance(node, _TEXTS) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
        yield from range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
        return
    for child in ast.iter_child_nodes(node):
        yield from _text_lines(child)
