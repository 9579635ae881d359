"""What to write instead: hints for Python that is not part of the expression language."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable

REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.JoinedStr: ("f-strings are not part of the language", "write the text outside: `text ${{ value }} text`, or add texts with `+`"),
    ast.Lambda: ("`lambda` is not part of the language", "use a comprehension: `[x.a for x in items if x.b]`"),
    ast.NamedExpr: ("`:=` is not part of the language", "name a value with a `set` step or in `vars`"),
    ast.Starred: ("`*` in front of a value is not part of the language", "add lists with `+`"),
    ast.Set: ("sets are not part of the language", "write a list: `[1, 2]`"),
    ast.SetComp: ("set comprehensions are not part of the language", "write a list: `[x for x in items]`"),
    ast.Await: ("`await` is not part of the language", "write the value itself"),
    ast.Yield: ("`yield` is not part of the language", "write the value itself"),
    ast.YieldFrom: ("`yield` is not part of the language", "write the value itself"),
    ast.Pow: ("`**` is not part of the language", "multiply, or write the number"),
    ast.MatMult: ("`@` is not part of the language", "use `+ - * / // %`"),
    ast.LShift: ("`<<` is not part of the language", "write a size as `size('1GiB')`"),
    ast.RShift: ("`>>` is not part of the language", "divide with `//`"),
    ast.BitOr: ("`|` is not part of the language: there are no filters", "write `or`, or call the function: `default(x, 1)`"),
    ast.BitAnd: ("`&` is not part of the language", "write `and`"),
    ast.BitXor: ("`^` is not part of the language", "write `!=` between booleans"),
    ast.Invert: ("`~` is not part of the language", "write `not`"),
    ast.Is: ("`is` is not part of the language", "write `==`"),
    ast.IsNot: ("`is not` is not part of the language", "write `!=`"),
}

METHODS = {
    "get": "write `get(x, 'key', default)`",
    "items": "iterate over the keys: `[k for k in x]`, and read `x[k]`",
    "keys": "iterate over the mapping itself: `[k for k in x]`",
    "values": "write `[x[k] for k in x]`",
    "split": "write `lines(text)`, or `search('…', text)` for a part of it",
    "splitlines": "write `lines(text)`",
    "startswith": "write `search('^…', text)`",
    "endswith": "write `search('…$', text)`",
    "find": "write `'…' in text` or `search('…', text)`",
    "index": "write `'…' in text` or `search('…', text)`",
    "count": "write `len([x for x in items if x == …])`",
    "match": "write `match('…', text)`",
    "search": "write `search('…', text)`",
    "lower": "compare without case: `search('(?i)…', text)`",
    "upper": "compare without case: `search('(?i)…', text)`",
    "format": "write the text outside: `text ${{ value }} text`",
    "join": "write the list itself into shell text, or `json(x)`",
    "strip": "compare with `search('…', text)`",
}

CALLS = {
    "str": "a text around the expression turns it to text: `text ${{ value }}`",
    "int": "write `round(x)`; text from a host stays text",
    "float": "numbers need no conversion; text from a host stays text",
    "bool": "write a comparison, as in `x != 0` or `len(x) > 0`",
    "range": "write the list: `[0, 1, 2]`",
    "dict": "write `{'key': value}`",
    "list": "write `[x for x in items]`",
    "contains": "write `'…' in text`",
    "defined": "write `known(x)`",
    "matches": "write `search('…', text)`",
    "bytes": "write `size('1GiB')`",
    "tojson": "write `json(x)`",
    "toJSON": "write `json(x)`",
    "success": "write `run.verdict == null`",
}

_SYNTAX = (
    (r"[“”„‘’‚«»]", "write straight quotes: `'…'`"),
    (r"&&", "write `and`"),
    (r"\|\|", "write `or`"),
    (r"!(?!=)", "write `not`"),
    (r"\?", "write `a if condition else b`"),
    (r"\$\{\{", "one expression cannot hold another: drop the inner `${{ }}`"),
    (r"\$", "write a variable as `vars.name`"),
    (r"\{\{", "write one name, without more braces"),
    (r"(?<![=!<>:])=(?!=)", "write `==` to compare"),
    (r"\band\s*$|\bor\s*$|\bnot\s*$|[-+*/<>=.,]\s*$", "the end is missing"),
)


def syntax_problem(line: str, error: SyntaxError) -> tuple[str, str | None, int]:
    """(summary, hint, offset) for text that is not Python at all. Reads the text rather than the wording of the parser."""
    offset = min(max(0, (error.offset or 1) - 1), len(line))
    outside = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", lambda found: "s" * len(found[0]), line)
    for found in re.finditer(r"\.\s*([a-z]+)\b", outside):
        if keyword.iskeyword(found[1]):
            return f"`{found[1]}` is a reserved word", f"write `['{found[1]}']` for this key", found.start(1)
    if (quote := re.search(r"['\"]", outside)) is not None:
        return "a quote is never closed", f"add the closing {quote[0]}", quote.start()
    for pattern, hint in _SYNTAX:
        if (odd := re.search(pattern, outside)) is not None:
            return f"`{odd[0].strip()}` is not expected here", hint, odd.start()
    return "the expression cannot be read", _balance(outside), offset


def nearest(word: str, words: Iterable[object]) -> str | None:
    """The word that was probably meant."""
    import difflib

    close = difflib.get_close_matches(word, [str(item) for item in words][:10_000], n=1)
    return close[0] if close else None


def method_hint(name: str, functions: Iterable[str]) -> str:
    """What to write instead of the method call `x.name()`."""
    if name in METHODS:
        return METHODS[name]
    known = sorted(functions)
    return f"write `{name}(x)`" if name in known else "functions are: " + ", ".join(known)


def call_hint(name: str, functions: Iterable[str]) -> str:
    """What to write instead of the unknown function `name`."""
    known = sorted(functions)
    if name in CALLS:
        return CALLS[name]
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else "functions are: " + ", ".join(known)


def _balance(outside: str) -> str | None:
    for left, right in ("()", "[]", "{}"):
        opened, closed = outside.count(left), outside.count(right)
        if opened != closed:
            return f"there are {opened} `{left}` and {closed} `{right}`"
    return None
