"""Does raw YAML data fit a type? All misfits at once, each with its path; and every text with what kind of text it is.

msgspec's own conversion stops at the first misfit, and a JSON Schema validator knows neither units nor the field that was
probably meant. So the same type tree (`msgspec.inspect`) from which the published schema is made is walked here.
A whole expression (`${{ … }}`) fits everywhere: what it gives is known only when it runs. It is recorded as a hole.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal, NamedTuple

import msgspec.inspect as mi

from runbook.lang.tokens import is_whole
from runbook.model.units import UnitError
from runbook.playbook.near import not_given, suggestion

Path = tuple[Any, ...]
type_of: Any = functools.lru_cache(maxsize=None)(mi.type_info)
"""The type tree of a struct; making one takes a millisecond."""


class Misfit(NamedTuple):
    """A value that does not fit. `at` says whether its key or its value is to blame."""

    path: Path
    code: str
    summary: str
    hint: str | None = None
    at: Literal["key", "value"] = "value"


class Leaf(NamedTuple):
    """A text inside the data; `extra` is its kind (`model.fields`), empty for plain text. `default` is its field's.

    `list_too`: its type also takes a list, so a whole expression that gives one stays a list.
    """

    path: Path
    text: str
    extra: dict[str, Any]
    default: Any
    list_too: bool = False


class Hole(NamedTuple):
    """A whole expression where the type has no text."""

    path: Path
    type: Any
    default: Any


_KIND_WORDS: dict[Any, str] = {
    mi.StrType: "text",
    mi.IntType: "a whole number",
    mi.FloatType: "a number",
    mi.BoolType: "`true` or `false`",
    mi.NoneType: "null",
    mi.ListType: "a list",
    mi.VarTupleType: "a list",
    mi.TupleType: "a list",
    mi.DictType: "a mapping",
    mi.StructType: "a mapping",
}
KIND_WORDS = {
    "regex": "a regular expression",
    "shell": "shell text",
    "expression": "an expression",
    "python": "Python source",
    "profile": "the name of a profile",
    "ref": "the id of a step",
    "forward_ref": "the id of a step",
}
UNIT_WORDS = {"Duration": "a duration", "TimeBox": "a duration", "Size": "a size", "Rung": "a signal and a wait", "Rate": "a rate"}
UNIT_EXAMPLES = {"Duration": "10m", "TimeBox": "10m", "Size": "1GiB", "Rung": "TERM 15s", "Rate": "20 per 10s"}
_HELD_BY: dict[Any, type] = {
    mi.StrType: str,
    mi.IntType: int,
    mi.NoneType: type(None),
    mi.ListType: list,
    mi.VarTupleType: list,
    mi.DictType: dict,
    mi.StructType: dict,
    mi.AnyType: object,
}
_LISTS = (mi.ListType, mi.VarTupleType)


def bare(type_: Any) -> tuple[Any, dict[str, Any]]:
    """A type without its annotations, and the kind that they carry."""
    extra: dict[str, Any] = {}
    while isinstance(type_, mi.Metadata):
        extra = {**(type_.extra or {}), **extra}
        type_ = type_.type
    return type_, extra


def kind_of(type_: Any) -> dict[str, Any]:
    """The kind of text that a type is, or that it may be."""
    type_, extra = bare(type_)
    if not extra and isinstance(type_, mi.UnionType):
        return next((found for part in type_.types if (found := kind_of(part))), {})
    return extra


def words_for(type_: Any) -> str:
    """A type in words: "a size, or null"."""
    type_, extra = bare(type_)
    if extra.get("kind") in KIND_WORDS:
        return KIND_WORDS[extra["kind"]]
    if isinstance(type_, mi.UnionType):
        parts = list(dict.fromkeys(words_for(part) for part in type_.types if not isinstance(bare(part)[0], mi.NoneType)))
        return ", ".join(parts[:-1]) + (" or " if len(parts) > 1 else "") + parts[-1]
    if isinstance(type_, mi.LiteralType):
        return " or ".join(f"`{value}`" for value in type_.values)
    if isinstance(type_, mi.CustomType):
        return UNIT_WORDS[type_.cls.__name__]
    return _KIND_WORDS.get(type(type_), "a value")


def shown(value: Any) -> str:
    """A wrong value in words, as the reader typed it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"the number `{value}`"
    if isinstance(value, str):
        return f"the text `{value}`" if len(value) <= 40 else f"the text `{value[:37]}…`"
    return "a mapping" if isinstance(value, dict) else "a list"


class Shape:
    """One walk over data and its type. Results: `misfits`, `leaves`, `holes`."""

    def __init__(self) -> None:
        self.misfits: list[Misfit] = []
        self.leaves: list[Leaf] = []
        self.holes: list[Hole] = []
        self.words: list[Path] = []
        """Places of texts that are one of a list of words, so nothing else can have been meant."""

    def visit(self, type_: Any, value: Any, path: Path = (), default: Any = None) -> Shape:
        """Walk `value` as `type_`; answers itself."""
        type_, extra = bare(type_)
        if isinstance(type_, mi.AnyType):
            self._any(value, path)
        elif isinstance(type_, mi.UnionType):
            self._union(type_, value, path, default)
        elif isinstance(value, str):
            self._text(type_, value, path, extra, default)
        elif isinstance(type_, mi.StructType) and isinstance(value, dict):
            self._struct(type_, value, path)
        elif isinstance(type_, mi.DictType) and isinstance(value, dict):
            for key, item in value.items():
                self.visit(type_.value_type, item, (*path, key))
        elif isinstance(type_, _LISTS) and isinstance(value, list):
            self._list(type_, value, path)
        else:
            self._scalar(type_, value, path)
        return self

    def _any(self, value: Any, path: Path) -> None:
        if isinstance(value, str):
            self.leaves.append(Leaf(path, value, {}, None))
        elif isinstance(value, (dict, list)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self._any(item, (*path, key))

    def _union(self, union: mi.UnionType, value: Any, path: Path, default: Any) -> None:
        fitting = [part for part in union.types if _may_hold(bare(part)[0], value)]
        if not fitting:
            self._wrong(union, value, path)
            return
        tries = [Shape().visit(part, value, path, default) for part in fitting]
        # The first branch without a misfit; else the one that is nearest to what was written.
        best = min(tries, key=lambda one: (len(one.misfits), len(one.holes)))
        if len(best.misfits) == 1 and best.misfits[0].path == path and best.misfits[0].code in ("type", "choice"):
            self._wrong(union, value, path)
            return
        list_too = any(isinstance(bare(part)[0], _LISTS) for part in union.types)
        self.misfits += best.misfits
        self.leaves += [leaf._replace(list_too=list_too) if leaf.path == path else leaf for leaf in best.leaves]
        self.holes += best.holes
        self.words += best.words

    def _text(self, type_: Any, text: str, path: Path, extra: dict[str, Any], default: Any) -> None:
        if isinstance(type_, mi.StrType):
            self.leaves.append(Leaf(path, text, extra, default))
            if "${{" in text:
                return  # its length and form are known only when it runs
            if type_.pattern and not re.search(type_.pattern, text):
                self.misfits.append(
                    Misfit(
                        path,
                        "pattern",
                        f"{name_of(path)} has a form of its own, and {shown(text)} does not fit",
                        f"it must match `{type_.pattern}`",
                    )
                )
            if type_.min_length and len(text) < type_.min_length:
                self.misfits.append(Misfit(path, "empty", f"{name_of(path)} is empty"))
        elif is_whole(text) or (isinstance(type_, mi.CustomType) and "${{" in text):
            self.leaves.append(Leaf(path, text, extra, default))
            self.holes.append(Hole(path, type_, default))
        else:
            self._scalar(type_, text, path)

    def _list(self, type_: Any, value: list[Any], path: Path) -> None:
        if type_.min_length and len(value) < type_.min_length:
            self.misfits.append(Misfit(path, "empty", f"{name_of(path)} needs at least {type_.min_length}"))
        for index, item in enumerate(value):
            self.visit(type_.item_type, item, (*path, index))

    def _struct(self, type_: mi.StructType, value: dict[Any, Any], path: Path) -> None:
        fields = {field.encode_name: field for field in type_.fields}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                where = f" in {name_of(path)}" if path else ""
                hint = suggestion(str(key), fields)
                self.misfits.append(Misfit((*path, key), "unknown-key", f"unknown key `{key}`{where}", hint, "key"))
            else:
                self.visit(field.type, item, (*path, key), field.default)
        for name in not_given((name for name, field in fields.items() if field.required), value, fields):
            what = f"{name_of(path)} needs" if path else "missing"
            hint = f"add `{name}:` with {words_for(fields[name].type)}"
            self.misfits.append(Misfit(path, "missing-key", f"{what} the key `{name}`", hint, "key"))

    def _scalar(self, type_: Any, value: Any, path: Path) -> None:
        if isinstance(type_, mi.CustomType):
            try:
                type_.cls.parse(value)  # type: ignore[attr-defined]
            except UnitError as error:
                self.misfits.append(Misfit(path, "unit", str(error), error.hint or None))
        elif not _fits(type_, value):
            self._wrong(type_, value, path)
        elif bound := _out_of_bounds(type_, value):
            self.misfits.append(Misfit(path, "range", f"{name_of(path)} must be {bound}, not `{value}`"))
        elif isinstance(type_, mi.LiteralType):
            self.words.append(path)

    def _wrong(self, type_: Any, value: Any, path: Path) -> None:
        code = "choice" if isinstance(type_, mi.LiteralType) else "type"
        summary = f"{name_of(path)} must be {words_for(type_)}, not {shown(value)}"
        self.misfits.append(Misfit(path, code, summary, _hint(type_, value), "key" if value is None else "value"))


def name_of(path: Path) -> str:
    """The key a path ends in, for a message."""
    if path and isinstance(path[-1], int):
        return f"item {path[-1] + 1} of {name_of(path[:-1])}"
    return f"`{path[-1]}`" if path else "the value"


def _may_hold(type_: Any, value: Any) -> bool:
    """Is this branch of a union meant when somebody writes such a value?"""
    if isinstance(value, str) and is_whole(value):
        return not isinstance(type_, mi.NoneType)
    if isinstance(type_, mi.CustomType):
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if isinstance(type_, mi.LiteralType):
        return any(type(item) is type(value) for item in type_.values)
    return _fits(type_, value)


def _fits(type_: Any, value: Any) -> bool:
    if isinstance(type_, mi.LiteralType):
        return any(type(item) is type(value) and item == value for item in type_.values)
    if isinstance(value, bool):
        return isinstance(type_, (mi.BoolType, mi.AnyType))
    if isinstance(type_, mi.FloatType):
        return isinstance(value, (int, float))
    wanted: Any = _HELD_BY.get(type(type_))
    return wanted is not None and isinstance(value, wanted)


def _out_of_bounds(type_: Any, value: Any) -> str | None:
    if not isinstance(type_, (mi.IntType, mi.FloatType)):
        return None
    for bound, word, broken in (
        (type_.ge, "at least", lambda limit: value < limit),
        (type_.gt, "more than", lambda limit: value <= limit),
        (type_.le, "at most", lambda limit: value > limit),
        (type_.lt, "less than", lambda limit: value >= limit),
    ):
        if bound is not None and broken(bound):
            return f"{word} {bound}"
    return None


def _hint(type_: Any, value: Any) -> str | None:
    parts = [bare(part)[0] for part in type_.types] if isinstance(type_, mi.UnionType) else [type_]
    if isinstance(value, str):
        choices = [str(item) for part in parts if isinstance(part, mi.LiteralType) for item in part.values]
        if any(isinstance(part, mi.BoolType) for part in parts) and value.lower() in ("yes", "no", "on", "off", "true", "false"):
            return f"write `{'true' if value.lower() in ('yes', 'on', 'true') else 'false'}`"
        if any(isinstance(part, (mi.IntType, mi.FloatType)) for part in parts) and value.strip().isdigit():
            return f"drop the quotes: write `{value.strip()}`"
        if any(isinstance(part, mi.LiteralType) and int in map(type, part.values) for part in parts) and value.strip() in choices:
            return f"drop the quotes: write `{value.strip()}`"
        if "off" in choices and value.lower() in ("no", "false", "none", "never"):
            return "write `off`"
        if any(isinstance(part, _LISTS) for part in parts) and re.match(r"-[\w./]", value):
            return "put a blank after the `-` of each item"
        close = suggestion(value, choices) if choices else None
        return close if close and close.startswith("did you mean") else None
    if value is False and any(isinstance(part, mi.LiteralType) and "off" in part.values for part in parts):
        return "write `off`"
    if isinstance(value, dict) and all(isinstance(part, (*_LISTS, mi.NoneType)) for part in parts):
        return "begin each item with `- `, also a single one"
    mapping = next((part for part in parts if isinstance(part, (mi.DictType, mi.StructType))), None)
    if mapping is not None and isinstance(value, list):
        return _pairs(value)
    if isinstance(mapping, mi.StructType) and (wanted := [field for field in mapping.fields if field.required]):
        return "write for example `{" + ", ".join(f"{field.encode_name}: {_example_of(field.type)}" for field in wanted) + "}`"
    if isinstance(value, float) and value.is_integer() and any(isinstance(part, mi.IntType) for part in parts):
        return f"write `{int(value)}`: with a point or an exponent it is no whole number"
    if isinstance(value, (int, float)) and any(isinstance(part, mi.StrType) for part in parts):
        return f"quote it: `'{str(value).lower() if isinstance(value, bool) else value}'`"
    if not isinstance(value, (list, dict)) and any(isinstance(part, _LISTS) for part in parts) and value is not None:
        return f"write a list: `[{value}]`"
    return None


def _pairs(items: list[Any]) -> str | None:
    """`[NAME=value]`, as on a command line, in the form of a mapping."""
    if items and all(isinstance(item, dict) and len(item) == 1 for item in items):
        name, value = next(iter(items[0].items()))
        return f"write `{name}: {value if isinstance(value, (str, int)) else '…'}`, without the `-` of a list"
    pairs = [item.split("=", 1) for item in items if isinstance(item, str) and re.match(r"\w+=", item)]
    return f"write `{pairs[0][0]}: {pairs[0][1]}`, without the `-` or brackets of a list" if pairs else None


def _example_of(type_: Any) -> str:
    type_, _ = bare(type_)
    return UNIT_EXAMPLES[type_.cls.__name__] if isinstance(type_, mi.CustomType) else "..."
