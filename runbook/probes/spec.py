"""What a patch asks for: probes and text edits. The fields are the YAML keys of the patch step."""

from __future__ import annotations

import ast
import keyword
from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta

from runbook.model.fields import PythonSource
from runbook.model.units import Rate

RESERVED = frozenset({"pid", "rank", "seq", "time", "probe", "mode", "condition", "process_start", "exit", "raised", "saved"})
"""Keys that every hit has; a shown value cannot be called so."""
MOST_SAVED = 16
"""Tensors of one hit: each has its place in a line of 4 KiB."""
TOTAL = 2000
"""Hits that one process writes for one probe, at most."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place in a source file at which values are written down each time it is reached."""

    at: Annotated[str, Meta(description="qualified function, as in `LlamaModel.forward`; nested functions as `outer.inner`")]
    where: Annotated[
        Literal["entry", "exit"] | None,
        Meta(description="entry: before the first statement; exit: on every way out, exceptions too, with `result` and `error` to show"),
    ] = None
    after: Annotated[
        str, Meta(description="one statement of that function, whitespace aside; after a compound statement is after its whole block")
    ] = ""
    before: Annotated[str, Meta(description="one statement of that function, whitespace aside")] = ""
    show: Annotated[
        Union[list[PythonSource], dict[str, PythonSource]],
        Meta(description="expressions to write down: a list, or a mapping of names; tensors as shape, dtype, device and statistics"),
    ] = {}
    save: Annotated[
        Union[list[PythonSource], dict[str, PythonSource]],
        Meta(description="tensors to write whole to a safetensors file on the host, capped: a list, or a mapping of names"),
    ] = {}
    alive: Annotated[str, Meta(description="class of that file: silence proves something only once one has been built")] = ""
    when: Annotated[PythonSource, Meta(description="a Python condition, evaluated in the server")] = ""
    hits: Annotated[Rate, Meta(description="a bucket that refills, counted apart for each combination of shapes")] = Rate("20 per 10s")

    def shown(self) -> dict[str, str]:
        """Name -> expression; in a list, the texts are the names. An exit probe without any shows the result."""
        named = _named(self.show)
        return named if named or self.where != "exit" else {"result": "result"}

    def saved(self) -> dict[str, str]:
        """Name -> expression of the tensors to save."""
        return _named(self.save)

    def problems(self) -> list[tuple[str, str, str]]:
        """Mistakes that can be told without the file: (key, summary, hint). Texts may still hold `${{ }}`, but for show and when."""
        found = [*self._place_problems()]
        for name in RESERVED.intersection(self.shown()):
            found.append(("show", f"every hit already has a `{name}`", "give the value another name"))
        for key, texts in (("show", self.shown()), ("save", self.saved())):
            found += [(key, summary, hint) for text in texts.values() for summary, hint in expression_problems(text)]
        if len(self.saved()) > MOST_SAVED:
            found.append(("save", f"{len(self.saved())} tensors are too many for one hit", f"save at most {MOST_SAVED}"))
        if self.alive and "${{" not in self.alive and not is_qualified(self.alive):
            found.append(("alive", f"`{self.alive}` is not the name of a class", "write for example `LlamaModel`"))
        found += [("when", summary, hint) for summary, hint in expression_problems(self.when)] if self.when else []
        return found

    def _place_problems(self) -> list[tuple[str, str, str]]:
        given = [key for key in ("where", "after", "before") if getattr(self, key)]
        found = []
        if len(given) != 1:
            said = "no place is given" if not given else f"{' and '.join(f'`{key}`' for key in given)} exclude each other"
            found.append(("at", said, "write one of `where: entry|exit`, `after: STATEMENT`, `before: STATEMENT`"))
        if "${{" not in self.at and not is_qualified(self.at):
            found.append(("at", f"`{self.at}` is not a qualified name", "write for example `LlamaModel.forward`"))
        return found


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exact text to replace. `count` is how often it must be there."""

    find: Annotated[str, Meta(description="exact text")]
    with_: Annotated[str, Meta(description="what stands there afterwards")] = msgspec.field(name="with")
    count: Annotated[int, Meta(description="how often `find` must be in the file", ge=1)] = 1


def _named(texts: list[PythonSource] | dict[str, PythonSource]) -> dict[str, str]:
    return dict(texts) if isinstance(texts, dict) else {text: text for text in texts}


def is_qualified(text: str) -> bool:
    """Whether the text is names joined by dots."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.replace(".<locals>", "").split("."))


def expression_problems(text: str) -> list[tuple[str, str]]:
    """Why a text cannot be evaluated at a probe: (summary, hint)."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        return [(f"`{text}` is not a Python expression: {error.args[0]}", "write an expression, as in `hidden_states.shape`")]
    if any(isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for node in ast.walk(tree)):
        return [(f"`{text}` would change what the server does", "await, yield and `:=` cannot be used in a probe")]
    return []


def is_plain(text: str) -> bool:
    """Whether an expression only reads names, attributes and constant items: safe while a CUDA graph is captured."""
    allowed = (ast.Expression, ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Load, ast.UnaryOp, ast.USub, ast.Tuple, ast.Slice)
    return all(isinstance(node, allowed) for node in ast.walk(ast.parse(text.strip(), mode="eval")))
