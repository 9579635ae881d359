"""Shell text with expressions: static problems, and filling it so that each value stays what it is.

A scalar becomes one quoted word, a list its quoted words joined by blanks, `raw(…)` goes in as it stands. A text that is one whole
expression must be a list or `raw(…)`: a single quoted word is hardly ever a command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from runbook.lang import shell_state
from runbook.lang.functions import Budget, Problem, words
from runbook.lang.parse import Parsed, parse
from runbook.lang.template import Templated, TemplateProblem, fill_text
from runbook.lang.tokens import Found, is_whole
from runbook.lang.values import Raw

_QUOTES = "an expression inside quotes in shell text"
_DROP = "drop the quotes: it is quoted for you"
_BY_ENV = 'pass it by `env:` and write `"$NAME"`'
_ONE_WORD = "a shell text that is one expression must be a list or `raw(…)`: any other value is quoted, one word, so no command line"
_PLACES: dict[str, tuple[str, str, str]] = {
    shell_state.SINGLE: ("expression-in-quotes", _QUOTES, _DROP),
    shell_state.DOUBLE: ("expression-in-quotes", _QUOTES, _DROP),
    shell_state.ANSI: ("expression-in-quotes", _QUOTES, _DROP),
    shell_state.ESCAPED: ("expression-after-backslash", "a backslash in front of an expression in shell text", "drop the backslash"),
    shell_state.COMMENT: ("expression-in-comment", "an expression in a shell comment", "drop it: a line break in it would end the comment"),
    shell_state.HEREDOC: ("expression-in-heredoc", "an expression in a here-document", _BY_ENV),
    shell_state.BACKTICK: ("expression-in-backticks", "an expression inside backticks", "write `$(…)` instead of the backticks"),
    shell_state.ARITHMETIC: ("expression-in-arithmetic", "an expression in shell arithmetic", "compute it inside the expression"),
    shell_state.BRACE: ("expression-in-braces", "an expression inside `${…}` of the shell", "write `default(x, y)` in the expression"),
}
_LAST_DIGITS = re.compile(r"(?<![^ ])(\d+)\Z")


class ShellProblem(NamedTuple):
    """A static mistake in shell text; `start` and `end` are offsets in the text."""

    code: str
    summary: str
    hint: str
    start: int
    end: int


def shell_problems(text: str) -> list[ShellProblem]:
    """Expressions where quoting cannot keep them one word, and secrets. Expressions that do not parse are not reported here."""
    problems = []
    for found, state in shell_state.places(text):
        if state in _PLACES:
            code, summary, hint = _PLACES[state]
            problems.append(ShellProblem(code, summary, hint, found.start, found.end))
        parsed = parse(found.source)
        names = [ref.path for ref in parsed.references if ref.root == "secrets"] if isinstance(parsed, Parsed) else []
        for path in names:
            name = ".".join(("secrets", *map(str, path)))
            problems.append(ShellProblem("secret-in-shell", f"`{name}` in shell text", _BY_ENV, found.start, found.end))
    return problems


def render_shell(text: str, scope: Mapping[str, Any]) -> Templated:
    """Fill shell text. Problems as in `template`, with an empty path; a static problem is one here too, so nothing unsafe is made."""
    unsafe = {problem.start: problem for problem in shell_problems(text)}
    whole = is_whole(text)
    budget = Budget()

    def write(value: Any, found: Found) -> str:
        problem = unsafe.get(found.start)
        if problem is not None:
            raise Problem(f"{problem.summary}: {problem.hint}")
        if whole and not isinstance(value, (list, tuple, Raw)):
            raise Problem(_ONE_WORD)
        text_words = words(value, budget)
        before_redirect = text[found.end : found.end + 1] in ("<", ">") and not isinstance(value, Raw)
        return _LAST_DIGITS.sub(r"'\1'", text_words) if before_redirect else text_words  # `2>file` would redirect, and drop the 2

    value, problems = fill_text(text, scope, write)
    return Templated(value, tuple(problems))


__all__ = ["ShellProblem", "TemplateProblem", "render_shell", "shell_problems"]
