"""A step's body with its expressions filled in, each text by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runbook.lang.expressions import Templated, TemplateProblem, template
from runbook.lang.shell_text import render_shell
from runbook.lang.tokens import mentions
from runbook.playbook.shape import Leaf, Shape

NEVER_FILLED = frozenset({"expression", "python"})
"""Bare expressions and the server's Python are evaluated elsewhere."""


def fill(type_: Any, body: dict[str, Any], scope_of: Callable[[], Mapping[str, Any]]) -> Templated:
    """Fill every text of `body` that may hold expressions; what gives no value stays as it was written, with its problem.

    Shell text is quoted, except where one whole expression gives a list and the field takes a list: that needs no shell.
    `scope_of` is called only when there is something to fill in: most steps have nothing.
    """
    if not mentions(body):
        return Templated(body, ())
    leaves = [leaf for leaf in Shape().visit(type_, body).leaves if "${{" in leaf.text and leaf.extra.get("kind") not in NEVER_FILLED]
    if not leaves:
        return Templated(body, ())
    scope = scope_of()
    filled: Any = body
    problems: list[TemplateProblem] = []
    for leaf in leaves:
        answer = _leaf(leaf, scope)
        problems += [problem._replace(path=leaf.path) for problem in answer.problems]
        if not answer.problems:
            filled = put(filled, leaf.path, answer.value)
    return Templated(filled, tuple(problems))


def _leaf(leaf: Leaf, scope: Mapping[str, Any]) -> Templated:
    if leaf.extra.get("kind") != "shell":
        return template(leaf.text, scope)
    if leaf.list_too:
        answer = template(leaf.text, scope)
        if isinstance(answer.value, list):
            return answer
    return render_shell(leaf.text, scope)


def put(value: Any, path: Sequence[Any], new: Any) -> Any:
    """A copy of nested data with one place changed."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy
