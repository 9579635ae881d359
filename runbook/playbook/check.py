"""Drafts to nodes: the values of each step, its common keys, its expressions in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from runbook.lang.tokens import is_whole
from runbook.model.diagnostic import Span
from runbook.model.playbook import BlockNode, Common, IncludeNode, Input, Node, Secret, StepNode
from runbook.model.units import Duration, UnitError
from runbook.playbook.convert import sketch
from runbook.playbook.drafts import BlockDraft, Draft, StepDraft, fields_of
from runbook.playbook.fill import put
from runbook.playbook.keys import NOT_ON_BLOCKS, CommonKeys
from runbook.playbook.names import INCLUDE, Names, Place, inside
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems
from runbook.playbook.shape import Shape, type_of
from runbook.playbook.sites import Placing, Site
from runbook.playbook.texts import Texts
from runbook.playbook.top import EVERYWHERE, check_var_names

IN_PLACE_OF = {
    ("loop", "a block"): "put it on the steps of the block",
    ("retry", "a block"): "put it on the step that may fail",
    ("ignore_errors", "a block"): "put it on the steps, or use `rescue`",
    ("loop", "an include"): "write one include for each item, or give the file a list as an input and loop over that on its steps",
    (
        "retry",
        "an include",
    ): "put it on the step of that file that may fail; an input can say how long: `retry: {for: '${{ vars.patience }}'}`",
    ("ignore_errors", "an include"): "put the include into a `block:` that has a `rescue:`",
}
"""What is written for a key of one step's outcome where several steps stand: ids and results of steps are there once."""
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Included(Protocol):
    """A file that is included, as the checker of the including file needs it."""

    file: str
    roles: list[str]
    inputs: dict[str, Input]
    outputs: dict[str, Any]
    data: dict[str, Any]
    problems: Problems
    names: Names

    def checked(self, site: Site, overrides: Mapping[str, Any]) -> Any:
        """Its nodes: a `unit.Part`."""
        ...


class Checker:
    """Checks the drafts of a file and builds nodes. `site` is where the file stands, `children` are its includes by id."""

    def __init__(
        self, problems: Problems, names: Names, texts: Texts, site: Site, children: Mapping[str, Included | None] | None = None
    ) -> None:
        self.problems = problems
        self.names = names
        self.texts = texts
        self.site = site
        self.roles = list(site.roles)
        self.placing = Placing(problems, names, site)
        self.children = children or {}
        self.secrets: list[Secret] = []
        """What the included files declare."""

    def nodes(self, drafts: list[Draft], place: Place, host: Any = None) -> tuple[Node, ...]:
        """Nodes of drafts that stand in `place`; `host` is what a block around them says."""
        return tuple(self._node(draft, place, host) for draft in drafts)

    def _node(self, draft: Draft, place: Place, host: Any) -> Node:
        if not isinstance(draft, StepDraft):
            return self._block(draft, place, host)
        return self._include(draft, place, host) if draft.type == INCLUDE else self._step(draft, place, host)

    def _step(self, draft: StepDraft, outer: Place, host: Any) -> StepNode:
        place = self._common(draft, outer)
        body = self._body(draft, place) if draft.sound else draft.body
        common = self._common_of(draft, host)
        if getattr(draft.cls, "NEEDS_HOST", True):
            self._need_host(draft, common)
            self.names.targets_of[draft.id] = self._count_targets(common)
            if self.site.prefix:
                common = msgspec.structs.replace(common, host=self.placing.expand(self.roles if common.host is None else common.host))
        return StepNode(
            id=self.site.prefix + draft.id,
            named=draft.named,
            type=draft.type,
            body=body,
            defaulted=tuple(draft.defaulted),
            common=common,
            span=self.problems.document.span(draft.path),
            spans=self._spans(draft),
        )

    def _block(self, draft: BlockDraft, outer: Place, host: Any) -> BlockNode:
        place = self._common(draft, outer)
        self._no_step_keys(draft, "a block")
        common = self._common_of(draft, host)
        parts = {part: self.nodes(drafts, place, common.host) for part, drafts in draft.parts.items()}
        return BlockNode(
            id=self.site.prefix + draft.id,
            steps=parts.get("block", ()),
            rescue=parts.get("rescue", ()),
            always=parts.get("always", ()),
            common=common,
            span=self.problems.document.span(draft.path),
            spans=self._common_spans(draft),
        )

    def _no_step_keys(self, draft: StepDraft | BlockDraft, what: str) -> None:
        for key in sorted(NOT_ON_BLOCKS & set(draft.common)):
            summary = f"`{key}` is for a step, not for {what}"
            self.problems.add("misplaced-key", summary, draft.common_paths[key], IN_PLACE_OF[key, what], at_key=True)

    def _common_spans(self, draft: StepDraft | BlockDraft) -> dict[str, Span]:
        return {f"~{key}": self.problems.document.span(path) for key, path in draft.common_paths.items()}

    def _include(self, draft: StepDraft, outer: Place, host: Any) -> BlockNode:
        """An include with the nodes of its file; without them when the file cannot be had, which is reported."""
        place = self._common(draft, outer)
        self._no_step_keys(draft, "an include")
        if draft.sound:
            self._body(draft, place)
        common = self._common_of(draft, host)
        child = self.children.get(draft.id)
        given: dict[str, Any] = {"id": self.site.prefix + draft.id, "span": self.problems.document.span(draft.path)}
        given["spans"] = self._spans(draft)
        if child is None:
            return BlockNode(**given, steps=(), common=common)
        site = self.placing.inside(draft, common.host, child.roles, child.inputs, child.file)
        part = child.checked(site, {})
        self.problems.found += child.problems.found
        self.secrets += part.secrets
        return IncludeNode(
            **given,
            steps=part.steps,
            always=part.always,
            common=msgspec.structs.replace(common, timeout=_shorter(common.timeout, child.data.get("timeout"))),
            file=child.file,
            inputs=child.inputs,
            outputs=child.outputs,
            vars=part.vars,
            given=dict(site.given),
            roles=dict(site.roles),
        )

    # the keys beside the type -----------------------------------------------------------------------------------

    def _common(self, draft: StepDraft | BlockDraft, outer: Place) -> Place:
        shape = Shape().visit(type_of(CommonKeys), draft.common)
        for misfit in shape.misfits:
            where = (*draft.common_paths.get(misfit.path[0], draft.path), *misfit.path[1:]) if misfit.path else draft.path
            self.problems.add(misfit.code, misfit.summary, where, misfit.hint, at_key=misfit.at == "key")
        vars = draft.common.get("vars")
        vars = vars if isinstance(vars, dict) else {}
        check_var_names(self.problems, vars, draft.common_paths.get("vars", draft.path))
        place = inside(outer, order=draft.order, vars=vars, loop="loop" in draft.common or getattr(draft, "loop_meant", False))
        own = draft.id if draft.named else None
        for leaf in shape.leaves:
            where = (*draft.common_paths[leaf.path[0]], *leaf.path[1:])
            self._common_text(leaf.path, leaf.text, where, place, outer, own)
        return place

    def _common_text(self, path: Path, text: str, where: Path, place: Place, outer: Place, own: str | None) -> None:
        match path:
            case ("when",):
                # `when` is decided once for the step, before its loop begins.
                self.texts.bare(text, where, replace(place, loop=outer.loop), boolean=True)
            case ("retry", "until"):
                self.texts.bare(text, where, replace(place, own=own), boolean=True)
            case ("loop", *_):
                self.texts.template(text, where, replace(place, loop=outer.loop), self.problems.document)
            case ("host", *_):
                self._role(text, where)
            case ("tags", *_):
                if not TAG.fullmatch(text):
                    self.problems.add("bad-tag", f"`{text}` is no tag", where, "use letters, digits, `_`, `.` and `-`")
            case ("id",) | ("ignore_errors", *_):
                if "${{" in text:
                    self.problems.add("type", f"`{path[0]}` cannot be an expression", where)
            case ("vars", name, *_):
                for parsed in self.texts.template(text, where, place, self.problems.document):
                    if any(one.root == "vars" and one.path[:1] == (name,) for one in parsed.references):
                        self.problems.add("var-cycle", f"`vars.{name}` needs itself", where, "choose another name")
            case _:
                self.texts.template(text, where, place, self.problems.document)

    def _role(self, text: str, where: Path) -> None:
        if "${{" in text:
            self.problems.add("type", "`host` cannot be an expression", where, "name a role; `-H ROLE=TARGET` says where that is")
        elif text != EVERYWHERE and text not in self.roles:
            hint = suggestion(text, self.roles) or "declare it: `hosts: {gpu: TARGET}`"
            self.problems.add("unknown-role", f"no role is called `{text}`", where, hint)

    def _common_of(self, draft: StepDraft | BlockDraft, host: Any) -> Common:
        raw = draft.common
        given = raw.get("host", host)
        when, ignore, timeout = raw.get("when"), raw.get("ignore_errors", False), raw.get("timeout")
        tags = raw.get("tags", [])
        return Common(
            name=str(raw.get("name") or ""),
            host=tuple(map(str, given)) if isinstance(given, (list, tuple)) else given if isinstance(given, str) else None,
            when=str(when).lower() if isinstance(when, bool) else when if isinstance(when, str) else None,
            loop=raw.get("loop"),
            timeout=timeout if isinstance(timeout, str) else None,
            retry=raw["retry"] if isinstance(raw.get("retry"), dict) else None,
            vars=raw["vars"] if isinstance(raw.get("vars"), dict) else {},
            ignore_errors=tuple(map(str, ignore)) if isinstance(ignore, list) else ignore is True,
            tags=tuple(map(str, tags if isinstance(tags, list) else [tags])),
        )

    def _need_host(self, draft: StepDraft, common: Common) -> None:
        if common.host is not None or len(self.roles) == 1:
            return
        if not self.roles:
            summary, hint = f"`{draft.type}` needs a host, and the playbook declares none", "add for example `hosts: {box: local}`"
        else:
            summary = f"`{draft.type}` needs a `host:`: the playbook has {len(self.roles)} roles"
            hint = f"add `host: {self.roles[0]}`, or `host: all`"
        self.problems.add("no-host", summary, (*draft.path, draft.type), hint, at_key=True)

    def _count_targets(self, common: Common) -> int:
        named = (common.host,) if isinstance(common.host, str) else common.host
        roles = self.roles if named in (None, (EVERYWHERE,)) else [role for role in named or () if role in self.roles]
        return sum(self.names.roles[role] for role in roles)

    # the type's own keys ----------------------------------------------------------------------------------------

    def _body(self, draft: StepDraft, place: Place) -> dict[str, Any]:
        """Check a step's own keys; the body, with the steps that it names under the ids that they have in the run."""
        shape = Shape().visit(type_of(draft.cls), draft.body)
        for misfit in shape.misfits:
            if misfit.code == "unknown-key" and len(misfit.path) == 1:
                hint = suggestion(str(misfit.path[0]), (*fields_of(draft.cls), "timeout"))
                self.problems.add(misfit.code, misfit.summary, draft.place(misfit.path), hint, at_key=True)
            elif misfit.path or misfit.code != "missing-key":
                self.problems.add(misfit.code, misfit.summary, draft.place(misfit.path), misfit.hint, at_key=misfit.at == "key")
            else:
                summary = misfit.summary.replace("missing", f"`{draft.type}` needs", 1)
                self.problems.add(misfit.code, summary, (*draft.path, draft.type), misfit.hint, at_key=True)
        self.problems.forgive([draft.place(path) for path in shape.words])
        for leaf in shape.leaves:
            self.texts.leaf(leaf, draft.place(leaf.path), place, draft)
        self.texts.forward_reference(draft)
        step: Any = sketch(draft.cls, draft.body, shape.holes) if not shape.misfits else None
        for dotted, summary, hint in step.problems() if step is not None else ():
            path = _path_in(draft.body, dotted)
            value = _value_at(draft.body, path)
            if path and isinstance(value, str) and is_whole(value):
                continue  # what it will hold is not known yet
            where = draft.place(path)
            self.problems.add("step", summary, where if path else (*draft.path, draft.type), hint or None, at_key=not path)
        body: Any = draft.body
        for leaf in shape.leaves:
            if (id := self.texts.bound(leaf)) != leaf.text:
                body = put(body, leaf.path, id)
        return dict(body)

    def _spans(self, draft: StepDraft) -> dict[str, Span]:
        document = self.problems.document
        spans = self._common_spans(draft)
        for path in _paths(draft.body):
            spans[".".join(map(str, path))] = document.span(draft.place(path))
        return spans


def _shorter(one: str | None, other: Any) -> str | None:
    """The smaller of an include's own time box and that of its file; an expression wins over both."""
    if one is None or not isinstance(other, str) or "${{" in one:
        return one if one is not None or not isinstance(other, str) else other
    try:
        return one if Duration.parse(one) <= Duration.parse(other) else other
    except UnitError:
        return one  # reported with the shape


def _paths(value: Any, path: Path = ()) -> list[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in ((*path, key), *_paths(item, (*path, key)))]


def _path_in(body: Any, dotted: str) -> Path:
    """A dotted path as keys and indices; keys may hold dots themselves. It ends where the data ends."""
    path: list[Any] = []
    rest, value = dotted, body
    while rest:
        if isinstance(value, dict):
            keys = [key for key in value if rest == str(key) or rest.startswith(f"{key}.")]
            key: Any = max(keys, key=lambda one: len(str(one)), default=None)
        else:
            head = rest.split(".", 1)[0]
            key = int(head) if isinstance(value, list) and head.isdigit() and int(head) < len(value) else None
        if key is None:
            break
        path.append(key)
        rest, value = rest[len(str(key)) + 1 :], value[key]
    return tuple(path)


def _value_at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value
