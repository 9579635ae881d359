"""What is wrong with a hosts.yaml: every mistake at once, each with its place and with what to write."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, TypeVar, Union

import msgspec

from runbook.hosts.base import ResolveFailed
from runbook.hosts.inventory import Entry, Group
from runbook.hosts.ssh_config import split_target
from runbook.lang.document import Document, Path
from runbook.lang.yaml_edge import Edge
from runbook.model.diagnostic import Diagnostic, Severity
from runbook.playbook.near import nearest
from runbook.playbook.problems import Problems
from runbook.playbook.shape import Misfit, Shape, type_of

CODE = "bad-inventory"
BUILT_IN = ("local", "lab")
E = TypeVar("E", Entry, Group)


class FileKeys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The left edge of hosts.yaml."""

    hosts: Union[dict[str, Union[Entry, None]], None] = None
    groups: Union[dict[str, Union[list[str], Group]], None] = None
    ansible: Union[str, None] = None


EDGE = Edge(frozenset(FileKeys.__struct_fields__))
_FORMS = {
    "hosts": "write `hosts: {NAME: {host: ADDRESS}}`",
    "groups": "write `groups: {NAME: {hosts: [A, B]}}`",
    "ansible": "write `ansible: inventory.ini`",
}
_VALUES = {
    "host": "write an address or ssh alias; without `host` the name itself is one",
    "user": "write a name, or leave it out",
    "port": "write a number, as in `port: 22`",
    "via": "write a command, as in `via: docker exec -i NAME`",
    "python": "write a path, as in `python: /opt/conda/bin/python`",
    "gpus": "write a list of numbers, as in `gpus: [0, 1]`",
    "vars": "write `vars: {NAME: VALUE}`",
    "labels": "write `labels: {NAME: VALUE}`, with plain values",
    "protect": "write a list of rules, as in `protect: [{user: alice}]`",
    "production": "write `true`, or leave it out",
    "shared": "write `true`, or leave it out",
    "hosts": "write a list of names, as in `hosts: [A, B]`",
}


def check(document: Document) -> list[Diagnostic]:
    """All mistakes (errors), and what is rarely meant (warnings)."""
    problems = Problems(document)
    data = document.data
    if not isinstance(data, dict) or not data:
        problems.add(CODE, "hosts.yaml has the keys `hosts:` (names and their hosts), `groups:`, `ansible:`", (), _FORMS["hosts"])
        return problems.sorted()
    shape = Shape().visit(type_of(FileKeys), data)
    for misfit in shape.misfits:
        problems.add(CODE, _summary(misfit), misfit.path, _hint(misfit), at_key=misfit.at == "key")
    for leaf in shape.leaves:
        if "${{" in leaf.text and "vars" not in leaf.path[2:3]:
            problems.add(CODE, "an expression has no meaning here: no run is there to fill it in", leaf.path, "write the value itself")
    _Checker(problems, data).all()
    return problems.sorted()


def _summary(misfit: Misfit) -> str:
    """With the host or group that it is about."""
    if len(misfit.path) < 2:
        return misfit.summary
    own = f"{'host' if misfit.path[0] == 'hosts' else 'group'} `{misfit.path[1]}`"
    if len(misfit.path) == 2:
        return misfit.summary.replace(f"`{misfit.path[1]}`", own, 1)
    return f"{own}: {misfit.summary.removesuffix(f' in `{misfit.path[1]}`')}"


def _hint(misfit: Misfit) -> str:
    if misfit.hint:
        return misfit.hint
    if len(misfit.path) == 2 and misfit.path[0] == "hosts":
        return f"write `{misfit.path[1]}: {{host: ADDRESS}}`"
    forms = _FORMS if len(misfit.path) < 3 else _VALUES
    return forms.get(str(misfit.path[min(2, len(misfit.path) - 1)] if forms is _VALUES else misfit.path[0]), "leave it out")


class _Checker:
    """What no single value shows. Only entries of the right shape are looked at."""

    def __init__(self, problems: Problems, data: Mapping[str, Any]) -> None:
        self.problems = problems
        self.hosts = _sound(data.get("hosts"), Entry)
        self.groups = _sound(data.get("groups"), Group)

    def all(self) -> None:
        for name, entry in self.hosts.items():
            self._name(name, ("hosts", name))
            self._entry(entry, name, ("hosts", name))
        for name, group in self.groups.items():
            path: Path = ("groups", name)
            if name in self.hosts or name in BUILT_IN:
                self._add(f"`{name}` is a host and a group", path, "rename one", at_key=True)
            self._entry(group, name, path)
            self._members(group, name)

    def _add(self, summary: str, path: Path, hint: str, *, at_key: bool = False) -> None:
        self.problems.add(CODE, summary, path, hint, at_key=at_key)

    def _warn(self, summary: str, path: Path, hint: str) -> None:
        span = self.problems.document.span(path)
        self.problems.found.append(Diagnostic(code=CODE, summary=summary, span=span, hint=hint, severity=Severity.WARNING))

    def _name(self, name: str, path: Path) -> None:
        if _fault(name):
            self._add(f"`{name}` cannot name a host", path, "use letters, digits, `_`, `.` and `-`", at_key=True)

    def _entry(self, entry: Entry, name: str, path: Path) -> None:
        if name in BUILT_IN and (entry.host or entry.user or entry.port):
            what = "this machine" if name == "local" else "the lab"
            self._add(f"`{name}` is always {what}: where it is cannot be said here", path, "choose another name", at_key=True)
        if entry.port is not None and not 0 < entry.port < 65536:
            self._add(f"there is no port {entry.port}", (*path, "port"), "ports are numbers from 1 to 65535")
        if entry.host and entry.host not in BUILT_IN:
            self._host(entry, name, (*path, "host"))
        for index, rule in enumerate(entry.protect):
            if fault := rule.fault():
                self._add(fault, (*path, "protect", index), "write for example `{user: alice}` or `{file: /opt/sglang/*}`")
        self._via(entry, path)

    def _host(self, entry: Entry, name: str, path: Path) -> None:
        if "${{" in entry.host:
            return
        if fault := _fault(entry.host):
            self._add(fault.summary, path, fault.hint)
            return
        user, host, port = split_target(entry.host)
        for word, said, own in (("user", user, entry.user), ("port", port, entry.port)):
            if said and own:
                self._add(f"`{name}` has its {word} twice: `{own}` and, in `host`, `{said}`", path, "keep one of them")
        other = self.hosts.get(host)
        if other is not None and host != name and (other.host or other.user or other.port):
            summary = f"`{host}` is a name of this file, but `host:` is an ssh alias or address: what is said of `{host}` is not used"
            self._warn(summary, path, f"write the address of `{host}`")

    def _via(self, entry: Entry, path: Path) -> None:
        try:
            words = shlex.split(entry.via) if isinstance(entry.via, str) else entry.via
        except ValueError as error:
            text = f"`via` cannot be split into words: {str(error).lower()}"
            self._add(text, (*path, "via"), "close the quote, or write `via:` as a list")
            return
        if len(words) == 1 and words[0].rpartition("@")[2] in {*self.hosts, *self.groups, *BUILT_IN}:
            hint = "for a jump host write `ProxyJump` in ssh_config; `via` is for example `docker exec -i NAME`"
            self._add(f"`via: {words[0]}` names a host, but `via` is a command that each command is put behind", (*path, "via"), hint)

    def _members(self, group: Group, name: str) -> None:
        raw = self.problems.document.data["groups"][name]
        path: Path = ("groups", name) if isinstance(raw, list) else ("groups", name, "hosts")
        if not group.hosts:
            self._add(f"the group `{name}` has no host", path, "name its hosts, or take it out")
        for index, member in enumerate(group.hosts):
            where = (*path, index)
            if member in self.groups and member not in self.hosts:
                self._add(f"`{member}` is a group, and a group is made of hosts", where, f"write the hosts of `{member}`")
            elif member in group.hosts[:index]:
                self._add(f"`{member}` is there twice", where, "keep one")
            elif fault := _fault(member):
                self._add(fault.summary, where, fault.hint)
            elif member not in self.hosts and member not in BUILT_IN:
                self._misspelt(member, where)

    def _misspelt(self, member: str, path: Path) -> None:
        close = nearest(member, self.hosts, 0.75)
        if close is not None and _letters(close) != _letters(member):
            self._warn(f"`{member}` is taken as an ssh alias: this file has no such host", path, f"did you mean `{close}`?")


def _letters(name: str) -> str:
    """A name without its numbers: `gpu7` and `gpu8` are two hosts of one kind, not a slip."""
    return re.sub(r"\d+", "", name)


def _fault(text: str) -> ResolveFailed | None:
    try:
        split_target(text)
    except ResolveFailed as fault:
        return fault
    return None


def _sound(raw: Any, into: type[E]) -> dict[str, E]:
    """The entries of the right shape."""
    found: dict[str, E] = {}
    for name, value in raw.items() if isinstance(raw, dict) else ():
        try:
            found[str(name)] = msgspec.convert({"hosts": value} if isinstance(value, list) else value or {}, into)
        except msgspec.ValidationError:
            continue  # its shape is told
    return found
