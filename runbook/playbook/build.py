"""Source text to a checked playbook, or everything that is wrong with it. Touches no host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from runbook.lang.yaml_loader import Document, load
from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import Playbook, Target
from runbook.model.profile import Profile
from runbook.model.units import Duration, UnitError
from runbook.playbook.check import Checker
from runbook.playbook.drafts import Draft, Reader, Table, walk
from runbook.playbook.keys import PlaybookKeys
from runbook.playbook.names import Names, Place
from runbook.playbook.overrides import apply_overrides, read_vars, unreadable
from runbook.playbook.problems import Problems, has_errors
from runbook.playbook.shape import Shape, type_of
from runbook.playbook.texts import Texts
from runbook.playbook.top import check_var_names, read_hosts, read_posts, read_secrets, warn_of_targets

SUSPEND_FOR = Duration(7200)


def read_file(file: str) -> bytes:
    """The bytes of a file beside the playbook; the default of `load_playbook`'s `read`."""
    return FilePath(file).read_bytes()


def load_playbook(
    source: bytes,
    file: str,
    *,
    table: Table,
    profiles: Collection[str],
    profile: Callable[[str], Profile | None] | None = None,
    hosts: Collection[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    roles: Mapping[str, Sequence[str]] | None = None,
    host_vars: Collection[str] = (),
    read: Callable[[str], bytes] = read_file,
) -> tuple[Playbook | None, list[Diagnostic]]:
    """Check a playbook; None when there is an error among the diagnostics.

    table: step types by name. profiles: names of engine profiles. profile: reads one; with it there are warnings of what an engine's
    profile says about a step. hosts: names of the inventory; other targets are taken as ssh aliases, which only ssh can look up.
    overrides: variables of `-e`, as `overrides.read_overrides` gives them; they take part in the checks and are not in the answer.
    roles: targets of `-H`, which replace those of the file. host_vars: names of variables that the inventory gives. read: reads a
    vars file and may raise OSError.
    """
    document, found = load(source, file)
    if document is None:
        return None, found
    problems = Problems(document)
    problems.found += found
    data = document.data
    if not isinstance(data, dict):
        hint = (
            "put the steps under `steps:`, below a line `runbook: 1`" if isinstance(data, list) else "start with `runbook: 1` and `steps:`"
        )
        problems.add("type", "a playbook is a mapping", (), hint)
        return None, problems.sorted()
    playbook = _Build(problems, data, table, profiles, read).run(overrides or {}, roles or {}, hosts, host_vars)
    if profile is not None and not has_errors(problems.found):
        from runbook.playbook.advice import advise

        problems.found += advise(playbook, table, profile, overrides or {})
    diagnostics = problems.sorted()
    return (None if has_errors(diagnostics) else playbook), diagnostics


class _Build:
    def __init__(
        self, problems: Problems, data: dict[str, Any], table: Table, profiles: Collection[str], read: Callable[[str], bytes]
    ) -> None:
        self.problems = problems
        self.data = data
        self.table = table
        self.profiles = profiles
        self.read = read

    def run(
        self, overrides: Mapping[str, Any], roles: Mapping[str, Sequence[str]], hosts: Collection[str] | None, host_vars: Collection[str]
    ) -> Playbook:
        """All checks, each on what the ones before let through."""
        shape = Shape().visit(type_of(PlaybookKeys), self.data)
        self.problems.add_misfits(shape.misfits)
        self.problems.forgive(shape.words)
        targets = read_hosts(self.problems, self.data.get("hosts"), roles)
        warn_of_targets(self.problems, targets, hosts)
        reader = Reader(self.problems, self.table)
        main, always = (reader.read(self.data.get(key), (key,)) for key in ("steps", "always"))
        if self.data.get("steps") == []:
            self.problems.add("empty", "the playbook has no steps", ("steps",))
        names = self._names([*main, *always], targets)
        names.broken = reader.broken
        texts = Texts(self.problems, names, self.profiles)
        vars, documents = self._vars(texts)
        self._declare(names, vars, targets, host_vars)
        self._check_vars(texts, vars, documents, overrides)
        checker = Checker(self.problems, names, texts, list(targets))
        return self._playbook(targets, vars, checker.nodes(main, Place()), checker.nodes(always, Place()))

    def _names(self, drafts: list[Draft], targets: dict[str, tuple[Target, ...]]) -> Names:
        names = Names(self.problems)
        names.roles = {role: len(found) for role, found in targets.items()}
        names.secrets = {secret.name for secret in read_secrets(Problems(self.problems.document), self.data.get("secrets"))}
        for draft in walk(drafts):
            if draft.named:
                names.steps[draft.id] = draft
            if getattr(draft.cls, "FREE", False):
                for name in next(iter(draft.body.values()), None) or {}:
                    names.set_by.setdefault(str(name), draft.order)
        names.all_steps = list(walk(drafts))
        return names

    def _vars(self, texts: Texts) -> tuple[dict[str, Any], dict[str, Document]]:
        """Variables of the playbook and its vars files, and the document that each name's value came from."""
        raw = self.data.get("vars")
        vars: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
        check_var_names(self.problems, vars, ("vars",))
        documents = dict.fromkeys(vars, self.problems.document)
        files = self.data.get("vars_files")
        for index, name in enumerate(files if isinstance(files, list) else ()):
            if not isinstance(name, str):
                continue
            beside = str(FilePath(self.problems.document.file).parent / FilePath(name).expanduser())
            try:
                values, document, found = read_vars(self.read(beside), beside)
            except OSError as error:
                self.problems.add(
                    "unreadable", unreadable(beside, error).summary, ("vars_files", index), "paths count from the playbook's folder"
                )
                continue
            self.problems.found += found
            if document is not None:
                vars |= values
                documents |= dict.fromkeys(values, document)
        return vars, documents

    def _declare(self, names: Names, vars: dict[str, Any], targets: dict[str, tuple[Target, ...]], host_vars: Collection[str]) -> None:
        given = [name for found in targets.values() for target in found for name in target.vars]
        names.vars = {*map(str, vars), *map(str, given), *host_vars}

    def _check_vars(self, texts: Texts, vars: dict[str, Any], documents: dict[str, Document], overrides: Mapping[str, Any]) -> None:
        values, found = apply_overrides({**dict.fromkeys(texts.names.vars), **vars}, overrides)
        self.problems.found += found
        for name, value in {**vars, **values}.items():
            own = documents.get(name) if name not in values else None
            texts.variable(name, value, own)
        for cycle in texts.names.cycles():
            way = " → ".join(f"vars.{name}" for name in cycle)
            document = documents.get(cycle[0], self.problems.document)
            path = ("vars", cycle[0]) if document is self.problems.document else (cycle[0],)
            self.problems.at(
                "var-cycle", f"these variables need each other: {way}", document.span(path), "give one of them a value of its own"
            )

    def _playbook(self, targets: dict[str, tuple[Target, ...]], vars: dict[str, Any], steps: Any, always: Any) -> Playbook:
        document = self.problems.document
        keys = [key for key in self.data if isinstance(key, str)]
        return Playbook(
            file=document.file,
            text=document.text,
            name=str(self.data.get("name") or FilePath(document.file).stem),
            description=str(self.data.get("description") or ""),
            hosts=targets,
            vars=vars,
            vars_files=tuple(map(str, self.data.get("vars_files") or ())),
            secrets=read_secrets(self.problems, self.data.get("secrets")),
            steps=steps,
            always=always,
            post=read_posts(self.problems, self.data.get("post")),
            timeout=self._duration("timeout", None),
            suspend_for=self._duration("suspend_for", SUSPEND_FOR) or SUSPEND_FOR,
            collect=self.data.get("collect") != "off",
            spans={key: document.span((key,)) for key in keys},
        )

    def _duration(self, key: str, default: Duration | None) -> Duration | None:
        raw = self.data.get(key)
        if raw is None:
            return default
        if isinstance(raw, str) and "${{" in raw:
            self.problems.add("type", f"`{key}` at the top cannot be an expression", (key,), "write for example `10m`")
            return default
        try:
            return Duration.parse(raw)
        except UnitError:
            return default  # reported with the shape
