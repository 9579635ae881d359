"""Fill `${{ … }}` in nested data: one pass, so that text from a host is never evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runbook.lang.evaluate import evaluate
from runbook.lang.functions import MAX_TEXT, Problem, text_of
from runbook.lang.parse import ParseProblem, parse
from runbook.lang.tokens import Found, find_expressions, is_whole, unescape
from runbook.lang.values import Raw, Unknown
from runbook.model.diagnostic import Span

Path = tuple[str | int, ...]


class TemplateProblem(NamedTuple):
    """An expression that gave no value. `unknown`: it could not be seen, `text` is the reason. `path` is inside the templated value."""

    path: Path
    source: str
    text: str
    unknown: bool
    span: Span | None = None


class Templated(NamedTuple):
    """The filled value. Where an expression gave no value, the text still stands, or the `Unknown`."""

    value: Any
    problems: tuple[TemplateProblem, ...]


def template(value: Any, scope: Mapping[str, Any], *, span_of: Callable[[Path], Span | None] | None = None) -> Templated:
    """Fill every text below `value`; keys stay as they are.

    A text that is one whole expression takes its value with its type; elsewhere numbers, booleans and text become text.
    `span_of` gives the place of a path for the problems.
    """
    walk = _Walk(scope, span_of)
    return Templated(walk.fill(value, ()), tuple(walk.problems))


class _Walk:
    def __init__(self, scope: Mapping[str, Any], span_of: Callable[[Path], Span | None] | None) -> None:
        self.scope = scope
        self.span_of = span_of
        self.problems: list[TemplateProblem] = []

    def fill(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            return self._text(value, path) if "${{" in value else value
        if isinstance(value, Mapping):
            return {key: self.fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.fill(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _text(self, text: str, path: Path) -> Any:
        if is_whole(text):
            value, problem = value_of(find_expressions(text)[0], self.scope)
            if problem is not None:
                self._note(path, problem)
                return value if isinstance(value, Unknown) else text
            return str(value) if isinstance(value, Raw) else value
        filled, problems = fill_text(text, self.scope, lambda value, found: text_of(value))
        for problem in problems:
            self._note(path, problem)
        return filled

    def _note(self, path: Path, problem: TemplateProblem) -> None:
        span = self.span_of(path) if self.span_of else None
        self.problems.append(problem._replace(path=path, span=span))


def value_of(found: Found, scope: Mapping[str, Any]) -> tuple[Any, TemplateProblem | None]:
    """(value, None), or (Unknown or None, the problem)."""
    source = found.source.strip()
    if not found.closed:
        return None, TemplateProblem((), source, "`${{` is never closed: add `}}`, or write `$${{` for the text itself", False)
    parsed = parse(found.source)
    if isinstance(parsed, ParseProblem):
        return None, TemplateProblem((), source, f"{parsed.summary}; {parsed.hint}" if parsed.hint else parsed.summary, False)
    result = evaluate(parsed, scope)
    if result.problem is not None:
        return None, TemplateProblem((), source, result.problem, False)
    if result.unknown is not None:
        return result.unknown, TemplateProblem((), source, result.unknown.reason, True)
    return result.value, None


def fill_text(text: str, scope: Mapping[str, Any], write: Callable[[Any, Found], str]) -> tuple[Any, list[TemplateProblem]]:
    """Replace each expression by what `write` makes of its value; an expression without one leaves the text as it was.

    Gives an Unknown instead of the text when an expression could not be seen. `write` may raise Problem.
    """
    pieces: list[str] = []
    problems: list[TemplateProblem] = []
    unknown: Unknown | None = None
    position = size = 0
    for found in find_expressions(text):
        value, problem = value_of(found, scope)
        piece = text[found.start : found.end]
        if problem is None:
            try:
                piece = write(value, found)
                size += len(piece)
                if size > MAX_TEXT:
                    raise Problem(f"the text grows beyond {MAX_TEXT} characters")
            except Problem as error:
                problem = TemplateProblem((), found.source.strip(), str(error), False)
        if problem is not None:
            problems.append(problem)
        unknown = unknown or (value if isinstance(value, Unknown) else None)
        pieces += [unescape(text[position : found.start]), piece]
        position = found.end
    pieces.append(unescape(text[position:]))
    return unknown or "".join(pieces), problems
