"""One file of a playbook, in two readings: what it declares, then, once it is known where it stands, everything in it.

top file ── declares ──▶ steps, inputs, outputs ◀── declares ── each included file, and so on
    │
    └─ checked(site) ──▶ nodes ──▶ each included file: checked(its site) ──▶ nodes under `ID.`
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from runbook.lang.yaml_loader import Document
from runbook.model.playbook import Node, Origin, Secret
from runbook.playbook.check import Checker, Included
from runbook.playbook.defaults import Defaults
from runbook.playbook.drafts import Draft, Reader, StepDraft, Table, walk
from runbook.playbook.foreign import TOP_KEYS
from runbook.playbook.inputs import read_inputs
from runbook.playbook.keys import PlaybookKeys
from runbook.playbook.library import DEEPEST, MOST_INCLUDES, Library
from runbook.playbook.names import INCLUDE, Names, Place
from runbook.playbook.near import nearest
from runbook.playbook.overrides import apply_overrides, read_vars, unreadable
from runbook.playbook.problems import Path, Problems
from runbook.playbook.shape import Misfit, Shape, type_of
from runbook.playbook.sites import Site
from runbook.playbook.texts import Texts
from runbook.playbook.top import check_var_names, read_outputs, read_secrets, roles_in

Home = tuple[Document, Path]
"""The document that a variable's value stands in, and its path there."""


class Part(NamedTuple):
    """What a file gives to the run."""

    steps: tuple[Node, ...]
    always: tuple[Node, ...]
    vars: dict[str, Any]
    origins: dict[str, tuple[Origin, ...]]
    secrets: tuple[Secret, ...]


def _as_meant(misfit: Misfit) -> Misfit:
    """A key at the left edge that another tool has, with what is written for it here."""
    known = TOP_KEYS.get(misfit.path[0]) if misfit.code == "unknown-key" and len(misfit.path) == 1 else None
    return misfit._replace(hint=known) if known else misfit


class Unit:
    """A file. `chain` are the paths of the files around it, outermost first, itself last."""

    def __init__(
        self,
        problems: Problems,
        data: dict[str, Any],
        table: Table,
        profiles: Collection[str],
        library: Library,
        chain: tuple[str, ...] = (),
    ) -> None:
        self.problems = problems
        self.data = data
        self.table = table
        self.profiles = profiles
        self.library = library
        self.file = problems.document.file
        self.chain = chain or (os.path.normpath(self.file),)
        shape = Shape().visit(type_of(PlaybookKeys), data)
        problems.add_misfits([_as_meant(misfit) for misfit in shape.misfits])
        problems.forgive(shape.words)
        self.roles = [role for role in roles_in(data.get("hosts")) if isinstance(role, str)]
        self.inputs = read_inputs(problems, data.get("inputs"))
        self.outputs = read_outputs(problems, data.get("outputs"))
        self.defaults = Defaults(problems, table, data.get("defaults"))
        reader = Reader(problems, table, self.defaults)
        self.main, self.always = (reader.read(data.get(key), (key,)) for key in ("steps", "always"))
        if data.get("steps") == []:
            problems.add("empty", "the playbook has no steps", ("steps",))
        self.drafts = [*self.main, *self.always]
        self.children: dict[str, Included | None] = {draft.id: self._child(draft) for draft in walk(self.drafts) if draft.type == INCLUDE}
        self.names = self._names(self.drafts)
        self.names.broken = reader.broken

    # what it declares --------------------------------------------------------------------------------------------

    def _child(self, draft: StepDraft) -> Unit | None:
        name = draft.body.get("playbook")
        where = draft.place(("playbook",))
        if not isinstance(name, str) or not name:
            return None  # the shape of the step says so
        if "${{" in name:
            self.problems.add("type", "the playbook of an include cannot be an expression", where, "write its name; choose by `when:`")
            return None
        path = self.library.locate(name, self.file)
        if path is None:
            hint = "it is looked for beside this file, in `lib`, in ./playbooks and among installed ones: `runbook list`"
            close = nearest(name, self.library.known(self.file))
            self.problems.add("unknown-playbook", f"no playbook `{name}` was found", where, f"did you mean `{close}`?" if close else hint)
            return None
        if path in self.chain:
            way = " → ".join([*self.chain[self.chain.index(path) :], path])
            self.problems.add("include-loop", f"these playbooks include each other: {way}", where, "move what both need into a third")
            return None
        self.library.count += 1
        if self.library.count > MOST_INCLUDES or len(self.chain) > DEEPEST:
            most = f"{MOST_INCLUDES} includes" if self.library.count > MOST_INCLUDES else f"{DEEPEST} levels of includes"
            self.problems.add("too-many-includes", f"more than {most}", where, "write the steps out")
            return None
        return self._read(path, where)

    def _read(self, path: str, where: Path) -> Unit | None:
        try:
            document, found = self.library.document(path)
        except OSError as error:
            self.problems.add("unreadable", unreadable(path, error).summary, where)
            return None
        self.problems.found += found
        if document is None:
            return None
        if not isinstance(document.data, dict):
            self.problems.add("type", f"`{path}` is no playbook: a playbook is a mapping", where)
            return None
        return Unit(Problems(document), document.data, self.table, self.profiles, self.library, (*self.chain, path))

    def _names(self, drafts: list[Draft]) -> Names:
        names = Names(self.problems)
        names.secrets = {secret.name for secret in read_secrets(Problems(self.problems.document), self.data.get("secrets"))}
        for draft in walk(drafts):
            if draft.named:
                names.steps[draft.id] = draft
            if getattr(draft.cls, "FREE", False):
                for name in next(iter(draft.body.values()), None) or {}:
                    names.set_by.setdefault(str(name), draft.order)
        names.all_steps = list(walk(drafts))
        for id, child in self.children.items():
            own = next(draft for draft in names.all_steps if draft.id == id)
            names.outputs[id] = None if child is None else frozenset(child.outputs)
            inner = child.names.all_steps if child is not None else []
            renamed = [replace(one, id=f"{id}.{one.id}", order=own.order, path=own.path) for one in inner]
            names.inner |= {one.id: one for one in renamed if one.named and own.named}
            names.all_steps = [*names.all_steps, *renamed]
        return names

    # everything in it --------------------------------------------------------------------------------------------

    def checked(self, site: Site, overrides: Mapping[str, Any]) -> Part:
        """All checks, each on what the ones before let through; the nodes, under the ids that they have in the run."""
        names = self.names
        names.roles = {role: site.targets(role) for role in self.roles if role in site.roles}
        names.tainted = site.tainted
        texts = Texts(self.problems, names, self.profiles, site)
        vars, homes, origins = self._vars()
        names.vars = {*map(str, self.inputs), *map(str, vars), *site.host_vars}
        self._check_vars(texts, vars, homes, overrides, site)
        checker = Checker(self.problems, names, texts, site, self.children)
        main, always = checker.nodes(self.main, Place()), checker.nodes(self.always, Place())
        self._check_outputs(texts)
        self.defaults.check_unused({draft.type for draft in walk(self.drafts)})
        secrets = {one.name: one for one in (*checker.secrets, *read_secrets(self.problems, self.data.get("secrets")))}
        return Part(main, always, vars, origins, tuple(secrets.values()))

    def _vars(self) -> tuple[dict[str, Any], dict[str, Home], dict[str, tuple[Origin, ...]]]:
        """Defaults of inputs, variables of the playbook and of its vars files; where each value stands; and what each replaced."""
        document = self.problems.document
        vars: dict[str, Any] = {}
        homes: dict[str, Home] = {}
        origins: dict[str, tuple[Origin, ...]] = {}

        def layer(kind: str, values: Mapping[str, Any], home: Document, base: Path, end: Path = ()) -> None:
            for name, value in values.items():
                vars[name], homes[name] = value, (home, (*base, name, *end))
                origins[name] = (*origins.get(name, ()), Origin(kind=kind, value=value, span=home.span((*base, name, *end))))

        layer("input", {name: one.default for name, one in self.inputs.items() if not one.required}, document, ("inputs",), ("default",))
        raw = self.data.get("vars")
        own = dict(raw) if isinstance(raw, dict) else {}
        check_var_names(self.problems, own, ("vars",))
        for name in own:
            if name in self.inputs:
                self.problems.add("duplicate-var", f"`{name}` is an input already", ("vars", name), "keep one of them", at_key=True)
        layer("vars", own, document, ("vars",))
        files = self.data.get("vars_files")
        for index, name in enumerate(files if isinstance(files, list) else ()):
            if isinstance(name, str):
                values, found = self._vars_file(name, index)
                if found is not None:
                    layer("vars_files", values, found, ())
        return vars, homes, origins

    def _vars_file(self, name: str, index: int) -> tuple[dict[str, Any], Document | None]:
        beside = str(FilePath(self.file).parent / FilePath(name).expanduser())
        try:
            values, document, found = read_vars(self.library.read(beside), beside)
        except OSError as error:
            hint = "paths count from the playbook's folder"
            self.problems.add("unreadable", unreadable(beside, error).summary, ("vars_files", index), hint)
            return {}, None
        self.problems.found += found
        return values, document

    def _check_vars(self, texts: Texts, vars: dict[str, Any], homes: dict[str, Home], overrides: Mapping[str, Any], site: Site) -> None:
        values, found = apply_overrides({**dict.fromkeys(texts.names.vars), **vars}, overrides, self.inputs)
        self.problems.found += found
        for name, value in {**vars, **values}.items():
            texts.variable(name, value, *(homes.get(name, (None, ())) if name not in values else (None, ())))
        texts.names.values |= site.given
        for cycle in texts.names.cycles():
            way = " → ".join(f"vars.{name}" for name in cycle)
            document, path = homes.get(cycle[0], (self.problems.document, ("vars",)))
            self.problems.at(
                "var-cycle", f"these variables need each other: {way}", document.span(path), "give one of them a value of its own"
            )

    def _check_outputs(self, texts: Texts) -> None:
        """Outputs are read after all steps, so all are known there."""
        last = Place(order=1 + max((one.order for one in self.names.all_steps), default=0))
        for name, value in self.outputs.items():
            raw = self.data["outputs"][name]
            base: Path = ("outputs", name, "value") if isinstance(raw, dict) else ("outputs", name)
            texts.nested(value, base, last)
