"""The reference page of expressions. The examples are evaluated when the page is made, so what stands behind an arrow is true."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from runbook.cli.reference import DO_NOT_EDIT
from runbook.lang.expressions import Parsed, Unknown, evaluate, parse
from runbook.lang.signatures import ARITY, MANY


class Function(NamedTuple):
    """How it is written, what it gives, an example."""

    form: str
    gives: str
    example: str


FUNCTIONS: dict[str, Function] = {
    "len": Function("len(x)", "how many items, keys or characters", "len(steps.chat.json.choices)"),
    "min": Function("min(x) or min(a, b, …)", "the smallest", "min(3, 1, 2)"),
    "max": Function("max(x) or max(a, b, …)", "the largest", "max([h.width for h in steps.seen.hits])"),
    "sum": Function("sum(x)", "the sum of numbers", "sum([1, 2.5])"),
    "any": Function("any(x)", "does one hold? Over an empty list from a host: unknown", "any(h.width == 192 for h in steps.seen.hits)"),
    "all": Function("all(x)", "do all hold? Over an empty list from a host: unknown", "all(h.width == 192 for h in steps.seen.hits)"),
    "sorted": Function("sorted(x)", "in order", "sorted(vars.ports)"),
    "abs": Function("abs(x)", "without its sign", "abs(-2)"),
    "round": Function("round(x) or round(x, digits)", "rounded", "round(4.8249, 2)"),
    "default": Function("default(x, v)", "x, or v when x could not be seen or is null", "default(steps.skipped.exit, -1)"),
    "get": Function(
        "get(x, 'path') or get(x, 'path', v)", "an optional part; without v null", "get(steps.chat.json, 'choices[0].text', 'none')"
    ),
    "known": Function("known(x)", "could it be seen?", "known(steps.skipped.exit)"),
    "quote": Function("quote(x)", "as one word of a shell; in shell texts that happens by itself", "quote('a b')"),
    "raw": Function("raw(x)", "as it is, in a shell text: several words, operators", "raw('a | b')"),
    "match": Function("match(re, text)", "the whole text: a list of the match and its groups, or null", r"match('(\d+)/(\d+)', '3/4')"),
    "search": Function("search(re, text)", "the same anywhere in the text", r"search('port (\d+)', 'on port 8000, ready')"),
    "lines": Function("lines(text)", "a list of lines", r"lines('one\ntwo\n')"),
    "json": Function("json(x)", "as JSON text", "json({'a': [1, true]})"),
    "duration": Function("duration(text)", "in seconds", "duration('1m30s')"),
    "size": Function("size(text)", "in bytes", "size('1KiB')"),
    "basename": Function("basename(path)", "its last part", "basename('/var/log/server.log')"),
    "env": Function("env('NAME') or env('NAME', v)", "a variable of the environment in which runbook runs", "env('NOT_SET', 'none')"),
    "tensor_diff": Function(
        "tensor_diff(a, b, atol, rtol)", "two tensor files of the run's folder, compared; tolerances are 0 unless given", ""
    ),
}
"""In the order of the page. `tensor_diff` reads files and has no example here."""

SCOPE: dict[str, Any] = {
    "vars": {"ports": [8001, 8000], "taps": 3, "name": "tiny"},
    "steps": {
        "chat": {"seconds": 2.5, "json": {"choices": [{"text": "hello"}]}},
        "seen": {"hits": [{"width": 64}, {"width": 192}]},
        "skipped": Unknown("step `skipped` was skipped"),
    },
    "__env__": {},
}
GRAMMAR = (
    ("names", "`vars` `steps` `secrets` `host` `hosts` `run`, in a loop `item` `index`", "vars.name"),
    ("parts", "by a dot or an index; a list from either end", "steps.chat.json.choices[-1].text"),
    ("slices", "of lists and texts", "vars.name[:2]"),
    ("literals", "numbers, texts in either quotes, lists, mappings, `true` `false` `null`", "[1, 'a', null, {'k': true}]"),
    ("arithmetic", "`+ - * / // %`, no `**`", "7 // 2 + 0.5"),
    ("comparisons", "`== != < <= > >=`, `in`, `not in`, chained", "1 < vars.taps <= 3"),
    ("logic", "`and or not`", "vars.taps == 3 and not false"),
    ("choice", "`a if c else b`", "'fast' if steps.chat.seconds < 5 else 'slow'"),
    ("comprehensions", "over a list, with conditions", "[h.width for h in steps.seen.hits if h.width > 64]"),
)
"""A kind of expression, what belongs to it, an example."""
UNKNOWNS = (
    "steps.skipped.exit == 0",
    "false and steps.skipped.exit == 0",
    "true or steps.skipped.exit == 0",
    "not (steps.skipped.exit == 0)",
)


def told(source: str) -> str:
    """What an example gives, as JSON; `unknown` for the third value."""
    parsed = parse(source)
    assert isinstance(parsed, Parsed), parsed
    found = evaluate(parsed, SCOPE)
    assert found.problem is None, (source, found.problem)
    return "unknown" if found.unknown is not None else json.dumps(found.value, ensure_ascii=False)


def expressions_page() -> str:
    """Grammar, functions, and how unknown is reckoned with, in Markdown."""
    return f"""# Expressions

Made from the language {DO_NOT_EDIT} Expressions stand in `${{{{ … }}}}` in any value, and bare in `when`, `that` and `until`.
How they are used: [Writing playbooks](../guides/writing_playbooks.md#expressions). There are no methods and no f-strings;
the hint of the error names the function instead.

The examples are computed with

```text
vars:  {_data(SCOPE["vars"])}
steps: chat {_data(SCOPE["steps"]["chat"])}, seen {_data(SCOPE["steps"]["seen"])}, and `skipped`, which did not run
```

## Grammar

| kind | | example | gives |
|---|---|---|---|
{_rows((kind, text, _code(example), _code(told(example))) for kind, text, example in GRAMMAR)}

## Functions

| function | gives | arguments | example | gives |
|---|---|---|---|---|
{_rows(_function_row(name, function) for name, function in FUNCTIONS.items())}

## Unknown

What could not be seen is neither true nor false, and so is what is computed from it, unless the rest decides alone
([Evidence of absence](../concepts/absence.md)).

| expression | gives |
|---|---|
{_rows((_code(source), _code(told(source))) for source in UNKNOWNS)}
"""


def _function_row(name: str, function: Function) -> tuple[str, ...]:
    least, most = ARITY[name]
    count = f"{least}" if least == most else f"{least} or more" if most == MANY else f"{least} to {most}"
    example = (_code(function.example), _code(told(function.example))) if function.example else ("", "")
    return (" or ".join(_code(form) for form in function.form.split(" or ")), function.gives, count, *example)


def _rows(rows: Any) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _data(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
