"""The functions of the expression language. Each takes plain data and the budget of the evaluation.

A wrong argument is a `Problem`. Unknown arguments never arrive here: the evaluator answers unknown before the call, but for
`known`, `default`, `get`, `any` and `all`, which it decides itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runbook.lang.values import Raw, Unknown, kind, short
from runbook.model.units import Duration, Size, UnitError

MAX_WORK = 250_000
MAX_ITEMS = 100_000
MAX_TEXT = 4 * 2**20
MAX_REGEX_TEXT = 2**20
MAX_NESTING = 100
MAX_INT = 2**63


class Problem(Exception):
    """A failed evaluation; the message is for people."""


class Missing(Problem):
    """Something is not in data that is there: an answer about the data, not a failure to look."""


class OverBudget(Problem):
    """Too much work or too large a value: never taken for an unknown."""


class Budget:
    """What one evaluation may still spend."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, amount: int = 1) -> None:
        """Pay for work; raises OverBudget when nothing is left."""
        self.left -= amount
        if self.left < 0:
            raise OverBudget("the expression does too much work: look at fewer items, or compute it in the script of a `run` step")


def checked(value: Any) -> Any:
    """A produced value within the bounds: size of a list or text, 2^63 for integers."""
    if isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
        raise Problem("the result is an integer larger than 2^63")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise OverBudget(f"the result is a text of {len(value)} characters, more than {MAX_TEXT}")
    if isinstance(value, (list, dict)) and len(value) > MAX_ITEMS:
        raise OverBudget(f"the result has {len(value)} items, more than {MAX_ITEMS}")
    return value


def unknown_inside(value: Any, budget: Budget, depth: int = 0) -> Unknown | None:
    """The first unknown in a value, at any depth."""
    if isinstance(value, Unknown):
        return value
    if not isinstance(value, (list, tuple, Mapping)):
        return None
    if depth > MAX_NESTING:
        raise OverBudget(f"the value is nested deeper than {MAX_NESTING} levels")
    budget.spend(len(value))
    for item in value.values() if isinstance(value, Mapping) else value:
        found = unknown_inside(item, budget, depth + 1)
        if found is not None:
            return found
    return None


def text_of(value: Any) -> str:
    """A scalar as text: numbers, true and false, text. Raises Problem for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value) if type(value) is str else str(value)
    if isinstance(value, int):
        return int.__repr__(checked(value))
    if isinstance(value, float):
        return float.__repr__(value)
    if value is None:
        raise Problem("the value is null, which has no text: write `default(x, '')` or another default")
    raise Problem(f"the value is a {kind(value)}, which has no text: write `json(x)`")


def words(value: Any, budget: Budget) -> str:
    """A value for a shell line: a scalar is one quoted word, a list its quoted words joined by blanks."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, (list, tuple)):
        budget.spend(len(value))
        return " ".join(item if isinstance(item, Raw) else quoted(text_of(item)) for item in value)
    return quoted(text_of(value))


_RESERVED = frozenset("""if then else elif fi do done case esac while until for in function select time coproc""".split())


def quoted(text: str) -> str:
    """One shell word. Also quoted are words that a shell would read as more than text: `if`, `a=b`."""
    if "\0" in text:
        raise Problem("the text has a NUL character, which no shell word can hold")
    import shlex

    word = shlex.quote(text)
    return f"'{word}'" if word == text and (text in _RESERVED or "=" in text) else word


def _items(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value)
    if not isinstance(value, (list, tuple)):
        raise Problem(f"`{name}` takes a list, not a {kind(value)}: {short(value)}")
    return value


def ordered(items: Sequence[Any], name: str) -> Sequence[Any]:
    """Items that can be ordered: all numbers or all text."""
    numbers = all(isinstance(item, (int, float)) for item in items)
    if not numbers and not all(isinstance(item, str) for item in items):
        odd = next((item for item in items if kind(item) != kind(items[0])), items[0])
        raise Problem(f"`{name}` orders numbers or text, not a mix: {short(items[0])} and {short(odd)}")
    return items


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Problem(f"`{name}` takes text, not a {kind(value)}: {short(value)}")
    return value


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise Problem(f"`{name}` takes a number, not a {kind(value)}: {short(value)}")
    return value


def _len(budget: Budget, value: Any) -> Any:
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise Problem(f"a {kind(value)} has no length: {short(value)}")
    return len(value)


def _extreme(name: str, pick: Callable[..., Any]) -> Callable[..., Any]:
    def call(budget: Budget, *args: Any) -> Any:
        items = _items(name, args[0]) if len(args) == 1 else args
        if not items:
            raise Problem(f"`{name}` of an empty list")
        budget.spend(len(items))
        return pick(ordered(items, name))

    return call


def _sum(budget: Budget, value: Any) -> Any:
    items = _items("sum", value)
    budget.spend(len(items))
    return sum(_number("sum", item) for item in items)


def _sorted(budget: Budget, value: Any) -> Any:
    items = _items("sorted", value)
    budget.spend(len(items) * 4)
    return sorted(ordered(items, "sorted"))


def _round(budget: Budget, value: Any, digits: Any = None) -> Any:
    if digits is not None and (not isinstance(digits, int) or not 0 <= digits <= 20):
        raise Problem(f"`round` takes 0 to 20 digits, not {short(digits)}")
    return round(_number("round", value), digits)


def _regex(whole: bool) -> Callable[..., Any]:
    name = "match" if whole else "search"

    def call(budget: Budget, pattern: Any, text: Any) -> Any:
        _text(name, text)
        if len(text) > MAX_REGEX_TEXT:
            raise Problem(f"`{name}` reads at most {MAX_REGEX_TEXT} characters, not {len(text)}: cut it, or use a `grep` step")
        from runbook.lang.regex import compiled

        found, why = compiled(_text(name, pattern))
        if found is None:
            raise Problem(f"`{name}`: {why}")
        budget.spend(len(text) // 1000 + 1)
        hit = found.fullmatch(text) if whole else found.search(text)
        return [hit[0], *hit.groups()] if hit else None

    return call


def _lines(budget: Budget, value: Any) -> Any:
    text = _text("lines", value).replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") > MAX_ITEMS:
        raise OverBudget(f"the text has more than {MAX_ITEMS} lines")
    found = text.split("\n")
    return found[:-1] if not found[-1] else found


def _to_json(budget: Budget, value: Any) -> Any:
    unknown_inside(value, budget)  # walks it: bounds nesting and size before anything is built
    import json

    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise Problem(f"`json` cannot write this value: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not plain data")


def _unit(name: str, parse: Callable[[object], Any], plain: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(budget: Budget, value: Any) -> Any:
        try:
            return plain(parse(_text(name, value)[:64]))
        except UnitError as error:
            raise Problem(f"{error}; {error.hint}" if error.hint else str(error)) from error

    return call


def _basename(budget: Budget, value: Any) -> Any:
    return _text("basename", value).rstrip("/").rpartition("/")[2]


_PATH_PART = re.compile(r"\.?([^.\[\]]+)|\[(-?\d{1,18})\]|\[(['\"])(.*?)\3\]")


def get(budget: Budget, value: Any, path: Any, fallback: Any = None) -> Any:
    """Read an optional path as in 'choices[0].text'; a part that is not there gives the fallback, an unknown one is unknown."""
    text = _text("get", path)
    position = 0
    while position < len(text):
        part = _PATH_PART.match(text, position)
        if part is None:
            raise Problem(f"`get` cannot read the path {short(text)}: write it as 'choices[0].text'")
        position = part.end()
        budget.spend()
        if isinstance(value, Unknown):
            return value
        key = part[1] or part[4]
        if isinstance(value, Mapping) and key is not None and key in value:
            value = value[key]
        elif isinstance(value, (list, tuple)) and part[2] and -len(value) <= int(part[2]) < len(value):
            value = value[int(part[2])]
        else:
            return fallback
    return value


PLAIN: dict[str, Callable[..., Any]] = {
    "len": _len,
    "min": _extreme("min", min),
    "max": _extreme("max", max),
    "sum": _sum,
    "sorted": _sorted,
    "abs": lambda budget, value: abs(_number("abs", value)),
    "round": _round,
    "quote": lambda budget, value: Raw(words(value, budget)),
    "raw": lambda budget, value: Raw(text_of(value)),
    "match": _regex(whole=True),
    "search": _regex(whole=False),
    "lines": _lines,
    "json": _to_json,
    "duration": _unit("duration", Duration.parse, float),
    "size": _unit("size", Size.parse, int),
    "basename": _basename,
}
"""Functions of their arguments alone."""
