"""Raw step mappings to drafts: which type, which keys beside it, which id. Values are looked at later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Union

import msgspec

from runbook.model.step_type import BrokenStepType
from runbook.playbook.foreign import LOOPS, STEP_KEYS, STEP_TYPES
from runbook.playbook.keys import BLOCK, COMMON
from runbook.playbook.near import nearest, suggestion
from runbook.playbook.problems import Path, Problems
from runbook.playbook.shape import shown

ID = re.compile(r"[a-z][a-z0-9_]*")
GIVEN_BY_US = re.compile(r"[sb]\d\d+_.*")
"""Ids of unnamed steps: `s07_wait_gpu_free`."""

StepClass = type[msgspec.Struct]
Table = Mapping[str, StepClass]


@dataclass
class StepDraft:
    """A step before its values are checked. `base` is the path of its body, `path` that of the whole mapping."""

    id: str
    named: bool
    order: int
    path: Path
    type: str
    cls: StepClass
    body: dict[str, Any]
    base: Path
    short: str | None
    common: dict[str, Any]
    common_paths: dict[str, Path]
    defaulted: dict[str, Path] = field(default_factory=dict)
    """Keys that the file's `defaults` gave, and where they stand."""
    loop_meant: bool = False
    """A loop stands there under the name that another tool gives it, which is reported."""
    sound: bool = True
    """False when the body is no mapping at all, which is reported; then nothing in it is looked at."""

    def place(self, path: Path) -> Path:
        """Where a path inside the body stands in the document: a shorthand has no key of its own."""
        if path[:1] and path[0] in self.defaulted:
            return (*self.defaulted[path[0]], *path[1:])
        return self.base + (path[1:] if self.short is not None and path[:1] == (self.short,) else path)


@dataclass
class BlockDraft:
    """A block. Its `order` is that of its first step: what ran before the block is known in its `when`."""

    id: str
    named: bool
    order: int
    path: Path
    common: dict[str, Any]
    common_paths: dict[str, Path]
    parts: dict[str, list[Draft]] = field(default_factory=dict)


Draft = Union[StepDraft, BlockDraft]


def walk(drafts: list[Draft]) -> Iterator[StepDraft]:
    """All steps in file order."""
    for draft in drafts:
        if isinstance(draft, StepDraft):
            yield draft
        else:
            for part in draft.parts.values():
                yield from walk(part)


class Filler(Protocol):
    """Gives steps what they leave out."""

    def into(self, draft: StepDraft) -> None:
        """Fill one step."""
        ...


class Reader:
    """Reads lists of steps in file order, counting them."""

    def __init__(self, problems: Problems, table: Table, defaults: Filler | None = None) -> None:
        self.problems = problems
        self.table = table
        self.defaults = defaults
        self.steps = 0
        self.blocks = 0
        self.ids: dict[str, Path] = {}
        self.broken: set[str] = set()
        """Ids of steps whose type cannot be told: what refers to them is right."""

    def read(self, items: Any, path: Path) -> list[Draft]:
        """A list of steps; what is no step is reported and left out."""
        if not isinstance(items, list):
            return []  # the shape of the level above says so
        drafts = [self._one(item, (*path, index), items[index + 1 : index + 2]) for index, item in enumerate(items)]
        return [draft for draft in drafts if draft is not None]

    def _one(self, item: Any, path: Path, following: list[Any]) -> Draft | None:
        if not isinstance(item, dict):
            self.problems.add("type", f"a step is a mapping, not {shown(item)}", path, self._as_step(item))
            return None
        # Common keys first: a table may have to look for a type that it does not know.
        types = [key for key in item if key not in COMMON and key not in BLOCK and key in self.table]
        kinds = types + (["block"] if "block" in item else [])
        unknown = [key for key in item if key not in types and key not in COMMON and key not in BLOCK]
        if not kinds:
            self.broken.add(str(item.get("id")))
            self._without_type(item, unknown, path, following)
            return None
        if types and not self._is_whole(types[0], (*path, types[0])):
            self.broken.add(str(item.get("id")))
            return None
        for extra in kinds[1:]:
            summary = f"a step has one type, but this one has `{kinds[0]}` and `{extra}`"
            self.problems.add("two-steps", summary, (*path, extra), f"start a new item: `- {extra}:`", at_key=True)
        for key in unknown:
            self._unknown_key(key, kinds[0], path)
        if "block" not in item:
            for key in ("rescue", "always"):
                if key in item:
                    self.problems.add(
                        "misplaced-key", f"`{key}` belongs to a `block`", (*path, key), "put the steps under `block:`", at_key=True
                    )
        return self._block(item, path) if kinds[0] == "block" else self._step(item, types[0], path)

    def _as_step(self, item: Any) -> str:
        """How a step that is no mapping would be written."""
        word, _, rest = item.partition(" ") if isinstance(item, str) else ("", "", "")
        if word not in self.table:
            return "write for example `- run: nvidia-smi`"
        return f"write `{word}: {rest.strip().removeprefix('=').strip()[:60]}`" if rest else f"write `- {word}:` and its keys"

    def _is_whole(self, name: str, path: Path) -> bool:
        """Whether a known type can be had: one of an installed package may be broken."""
        try:
            return self.table[name] is not None
        except BrokenStepType as broken:
            self.problems.add("broken-step-type", broken.summary, path, broken.hint, at_key=True)
            return False

    def _without_type(self, item: dict[Any, Any], unknown: list[Any], path: Path, following: list[Any]) -> None:
        # The misspelt step type: one that another tool has, the key that resembles one, else the first that is no common key either.
        odd = [key for key in unknown if key not in STEP_KEYS]
        guess = next((key for key in odd if key in STEP_TYPES or nearest(str(key), self.table)), next(iter(odd or unknown), None))
        if guess is None:
            self._without_any(item, path, following)
            return
        hint = STEP_TYPES.get(guess) or suggestion(str(guess), self.table)
        self.problems.add("unknown-step", f"unknown step type `{guess}`", (*path, guess), hint, at_key=True)
        for key in unknown:
            if key != guess:
                hint = STEP_KEYS.get(key) or suggestion(str(key), COMMON)
                self.problems.add("unknown-key", f"unknown key `{key}` of a step", (*path, key), hint, at_key=True)

    def _without_any(self, item: dict[Any, Any], path: Path, following: list[Any]) -> None:
        """A step of common keys alone, or a part of a block that became an item of a list."""
        part = next((key for key in ("rescue", "always") if key in item), None)
        if part is None:
            after = next(
                (key for one in following if isinstance(one, dict) for key in one if key in self.table and not {*one} & {*item}), None
            )
            hint = f"is it `{after}` of the next item? then remove the `-` before that" if after else None
            self.problems.add("no-step", "this step has no step type", path, hint or "add one of: " + ", ".join(sorted(self.table)))
            return
        whole = ", or at the left edge for the whole playbook" if part == "always" else ""
        hint = f"write it without the `-`, beside `block:`{whole}"
        self.problems.add("misplaced-key", f"`{part}` is no step of its own: it belongs to a `block`", (*path, part), hint, at_key=True)

    def _unknown_key(self, key: Any, type_: str, path: Path) -> None:
        if type_ in self.table and key in fields_of(self.table[type_]):
            self.problems.add(
                "misplaced-key", f"`{key}` belongs inside `{type_}`", (*path, key), "indent it under the step type", at_key=True
            )
            return
        hint = STEP_KEYS.get(key) or STEP_TYPES.get(key) or suggestion(str(key), [*COMMON, *BLOCK, *self.table])
        if hint is None or hint.startswith("known"):
            hint = suggestion(str(key), COMMON)
        self.problems.add("unknown-key", f"unknown key `{key}` of a step", (*path, key), hint, at_key=True)

    def _step(self, item: dict[str, Any], type_: str, path: Path) -> StepDraft:
        self.steps += 1
        cls = self.table[type_]
        common = {key: item[key] for key in COMMON if key in item}
        paths = {key: (*path, key) for key in common}
        id, named = self._id(common, f"s{self.steps:02}_{type_}", path)
        draft = StepDraft(id, named, self.steps, path, type_, cls, {}, (*path, type_), None, common, paths)
        draft.loop_meant = any(key in LOOPS for key in item)
        self._body(draft, item[type_])
        if self.defaults is not None and draft.sound:
            self.defaults.into(draft)
        return draft

    def _block(self, item: dict[str, Any], path: Path) -> BlockDraft:
        self.blocks += 1
        common = {key: item[key] for key in COMMON if key in item}
        paths = {key: (*path, key) for key in common}
        id, named = self._id(common, f"b{self.blocks:02}_block", path)
        draft = BlockDraft(id, named, self.steps + 1, path, common, paths)
        for part in BLOCK:
            if part in item:
                if not isinstance(item[part], list):
                    hint = "begin each step with `- `, also a single one"
                    self.problems.add("type", f"`{part}` must be a list of steps, not {shown(item[part])}", (*path, part), hint)
                draft.parts[part] = self.read(item[part], (*path, part))
        if isinstance(item["block"], list) and not item["block"]:
            self.problems.add("empty", "`block` has no steps", (*path, "block"))
        return draft

    def _id(self, common: dict[str, Any], default: str, path: Path) -> tuple[str, bool]:
        given = common.get("id")
        if not isinstance(given, str):
            return default, False
        where = (*path, "id")
        if not ID.fullmatch(given):
            fixed = re.sub(r"[^a-z0-9_]+", "_", given.lower()).strip("_")
            hint = f"write `{fixed}`" if ID.fullmatch(fixed) else "write a letter, then letters, digits and `_`"
            self.problems.add("bad-id", f"`{given}` is not an id: lower-case letters, digits and `_`, a letter first", where, hint)
        elif GIVEN_BY_US.fullmatch(given):
            self.problems.add("bad-id", f"`{given}` has the form of the ids that unnamed steps get", where, "choose a word, as in `server`")
        elif given in self.ids:
            first = self.problems.document.span((*self.ids[given], "id"))
            self.problems.add(
                "duplicate-id", f"the id `{given}` is taken by the step at line {first.line}", where, "ids are unique in a playbook"
            )
            return default, False
        self.ids.setdefault(given, path)
        return given, True

    def _body(self, draft: StepDraft, value: Any) -> None:
        shorthand: Any = getattr(draft.cls, "SHORTHAND", None)
        if getattr(draft.cls, "FREE", False):
            if not isinstance(value, dict):
                self.problems.add("type", f"`{draft.type}` must be a mapping, not {shown(value)}", draft.base)
                value, draft.sound = {}, False
            draft.body, draft.short = {shorthand: value}, shorthand
        elif isinstance(value, dict):
            draft.body = dict(value)
            self._lift(draft)
        elif value is None:
            draft.body = {}
        elif shorthand is not None:
            draft.body, draft.short = {shorthand: value}, shorthand
        else:
            fused = re.match(r"(\w+):(?=[^\s/])", value) if isinstance(value, str) else None
            keys = ", ".join(fields_of(draft.cls))
            hint = f"put a blank after the `:` of `{fused[1]}`" if fused else f"its keys: {keys}"
            self.problems.add("type", f"`{draft.type}` must be a mapping, not {shown(value)}", draft.base, hint)
            draft.sound = False

    def _lift(self, draft: StepDraft) -> None:
        """Common keys inside the mapping: `timeout` may stand there, the others are in the wrong place."""
        own = fields_of(draft.cls)
        for key in [key for key in draft.body if key in COMMON and key not in own]:
            where = (*draft.base, key)
            if key != "timeout":
                summary = f"`{key}` is a key of the step, not of `{draft.type}`"
                self.problems.add("misplaced-key", summary, where, f"put it one level up, beside `{draft.type}`", at_key=True)
            elif "timeout" in draft.common:
                self.problems.add(
                    "duplicate-timeout", f"`timeout` stands beside `{draft.type}` and inside it", where, "keep one", at_key=True
                )
            else:
                draft.common[key], draft.common_paths[key] = draft.body[key], where
            del draft.body[key]


def fields_of(cls: type[msgspec.Struct]) -> tuple[str, ...]:
    """The YAML keys of a struct."""
    return cls.__struct_encode_fields__
