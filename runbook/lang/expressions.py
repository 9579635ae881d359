"""The expression language `${{ … }}`: a subset of Python by `ast` over plain data, three-valued and bounded.

    text ── find_expressions ──▶ Found ── parse ──▶ Parsed | ParseProblem ── evaluate(scope) ──▶ Evaluation
    nested data ── template(scope) ──▶ Templated

Scope: nested plain data (mappings, lists, text, numbers, booleans, null); any part may be an `Unknown`. `scope["__env__"]` is the
environment that `env(NAME)` reads, `scope["__tensor_diff__"]` the function behind `tensor_diff(A, B)`. A lazy mapping in the scope may
raise `Problem`.
"""

from runbook.lang.evaluate import Evaluation, Part, evaluate
from runbook.lang.functions import Problem
from runbook.lang.parse import Parsed, ParseProblem, Reference, parse
from runbook.lang.signatures import ARITY
from runbook.lang.template import Templated, TemplateProblem, template
from runbook.lang.tokens import Found, find_expressions, is_whole
from runbook.lang.values import Raw, Unknown, short

FUNCTIONS = tuple(ARITY)
"""Names of all functions."""

__all__ = [
    "FUNCTIONS",
    "Evaluation",
    "Found",
    "ParseProblem",
    "Parsed",
    "Part",
    "Problem",
    "Raw",
    "Reference",
    "TemplateProblem",
    "Templated",
    "Unknown",
    "evaluate",
    "find_expressions",
    "is_whole",
    "parse",
    "short",
    "template",
]
