"""From the text of a target to a place: `local`, `lab`, a name of hosts.yaml, an ssh alias or an address.

hosts.yaml stands in the working folder or in `$XDG_CONFIG_HOME/runbook/`; of two, the first wins name by name:

    hosts:
      big-box: {host: gpu7.lab, user: me, port: 2222, via: docker exec -i sglang, python: /opt/conda/bin/python, gpus: [0, 1]}
      shared-box: {host: gpu8.lab, shared: true, protect: [{user: alice}, {port: 9090, why: monitoring}, {file: /opt/sglang/*}]}
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import msgspec

from runbook.hosts.base import ResolveFailed
from runbook.model.diagnostic import Diagnostic, Span
from runbook.model.playbook import Protect, Target

if TYPE_CHECKING:
    from runbook.lang.document import Document

FILE = "hosts.yaml"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host of hosts.yaml. `host` is an ssh alias or address, `local` or `lab`; without it the name itself is one."""

    host: str = ""
    user: str = ""
    port: Union[int, None] = None
    via: Union[str, list[str]] = ""
    python: str = ""
    gpus: Union[list[int], None] = None
    vars: dict[str, Any] = {}
    protect: tuple[Protect, ...] = ()
    production: bool = False
    shared: bool = False
    labels: dict[str, Union[str, int, bool]] = {}


class Group(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts by name; the other keys are what its hosts have where they do not say otherwise."""

    hosts: list[str]


class Files(NamedTuple):
    """What hosts.yaml says; the hosts have what their groups give them."""

    hosts: dict[str, Entry]
    groups: dict[str, list[str]]
    warnings: Sequence[Diagnostic] = ()


class LabState(msgspec.Struct, frozen=True, kw_only=True):
    """What a running lab says about itself in lab.json; its other keys are the lab's own."""

    host: str
    port: int
    user: str
    key: str
    known_hosts: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a target is. `kind` is local, lab or ssh; `ssh` the text that ssh would get; `via` the prefix as words."""

    name: str
    kind: str
    ssh: str = ""
    lab: Union[LabState, None] = None
    via: tuple[str, ...] = ()
    python: str = ""
    gpus: Union[list[int], None] = None
    vars: dict[str, Any] = {}
    protect: tuple[Protect, ...] = ()


class Inventory:
    """The hosts of the user's files. `known` is what can be suggested for a misspelt name."""

    warnings: Sequence[Diagnostic] = ()
    """What is rarely meant in them."""

    def __init__(self, hosts: Mapping[str, Entry], lab_file: Path, groups: Mapping[str, list[str]] | None = None) -> None:
        self.hosts = dict(hosts)
        self.groups = dict(groups or {})
        self._lab_file = lab_file

    @property
    def known(self) -> list[str]:
        """All names, `local` and `lab` first."""
        return ["local", "lab", *self.hosts]

    def place(self, target: Target) -> Place:
        """Where the target is; what the playbook says about it wins over hosts.yaml. Raises ResolveFailed."""
        entry = self.hosts.get(target.target, Entry())
        kind = next((text for text in (target.target, entry.host) if text in ("local", "lab")), "ssh")
        return Place(
            name=target.target,
            kind=kind,
            ssh=_ssh_text(target.target, entry) if kind == "ssh" else "",
            lab=read_lab(self._lab_file) if kind == "lab" else None,
            via=_words(target.via or entry.via, target.target),
            python=target.python or entry.python,
            gpus=target.gpus if target.gpus is not None else entry.gpus,
            vars={**entry.vars, **target.vars},
            protect=tuple(dict.fromkeys((*entry.protect, *target.protect))),
        )


def load(cwd: Path | None = None, env: Mapping[str, str] = os.environ) -> Inventory:
    """Read the user's files. Raises BadInventory with file and line for what cannot be read."""
    home = Path(env.get("HOME") or Path.home())
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state")
    hosts: dict[str, Entry] = {}
    groups: dict[str, list[str]] = {}
    warnings: list[Diagnostic] = []
    for path in (config / "runbook" / FILE, Path(cwd or working_folder()) / FILE):
        found = read_file(path)
        hosts.update(found.hosts)
        groups.update(found.groups)
        warnings += found.warnings
    inventory = Inventory(hosts, state / "runbook" / "lab" / "lab.json", groups)
    inventory.warnings = warnings
    return inventory


def working_folder() -> str:
    """The working folder; empty where that was deleted, in which nothing is found."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def read_lab(path: Path) -> LabState:
    """The lab's own file. Raises ResolveFailed when no lab is up."""
    try:
        return msgspec.convert(json.loads(path.read_text()), LabState)
    except FileNotFoundError:
        raise ResolveFailed("the lab is not up", "start it with `runbook lab up`") from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ResolveFailed(f"{path} cannot be read: {error}", "restart the lab: `runbook lab down`, `runbook lab up`") from None


class BadInventory(ResolveFailed):
    """A hosts.yaml that is not valid. `diagnostics` are all its mistakes with their places; the text is that of the first."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first, more = diagnostics[0], len(diagnostics) - 1
        counted = f" (and {more} more: `runbook hosts` lists them)" if more else ""
        super().__init__(f"{first.span}: {first.summary}{counted}", first.hint or "correct the line")
        self.diagnostics = list(diagnostics)


def read_hosts(path: Path) -> dict[str, Entry]:
    """The hosts of one file; none when there is no such file. Raises BadInventory with the place of the first mistake."""
    return read_file(path).hosts


def read_file(path: Path) -> Files:
    """Hosts and groups of one file and of the Ansible inventory that it names. Raises BadInventory with the places of all mistakes."""
    source = _bytes(path)
    if source is None:
        return Files({}, {})
    from runbook.hosts.inventory_check import EDGE, check
    from runbook.lang.yaml_loader import load as load_yaml

    document, found = load_yaml(source, str(path), EDGE)
    if document is None and [one.code for one in found] == ["empty-file"]:
        return Files({}, {})
    found = [msgspec.structs.replace(one, code="bad-inventory") for one in found] + (check(document) if document is not None else [])
    wrong = [one for one in found if one.severity == "error"]
    if document is None or wrong:
        raise BadInventory(wrong)
    top = document.data
    hosts = {name: msgspec.convert(value or {}, Entry) for name, value in (top.get("hosts") or {}).items()}
    given = top.get("groups") or {}
    groups = {name: msgspec.convert({"hosts": value} if isinstance(value, list) else value, Group) for name, value in given.items()}
    foreign = _foreign(document, top.get("ansible"), path)
    known = {**foreign.hosts, **{name: _over(own, foreign.hosts.get(name, Entry())) for name, own in hosts.items()}}
    return Files(_with_groups(known, groups), {**foreign.groups, **{name: one.hosts for name, one in groups.items()}}, found)


def _bytes(path: Path) -> bytes | None:
    """What the file holds; None where there is none. A pipe or a device, which may never give any, is not opened."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = "give yourself the right to read it, or move it away" if error.errno in (errno.EACCES, errno.EPERM) else "move it away"
        raise BadInventory([_mistake(Span(str(path), 1, 1), f"hosts.yaml cannot be read: {error.strerror}", hint)]) from None


def _mistake(span: Span, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code="bad-inventory", span=span, summary=summary, hint=hint)


def _foreign(document: Document, named: str | None, path: Path) -> Files:
    """Hosts and groups of the Ansible inventory that the file names, relative to itself."""
    if not named:
        return Files({}, {})
    from runbook.hosts.inventory_sources import ansible

    try:
        found = ansible(path.parent / Path(named).expanduser())
    except ResolveFailed as problem:
        raise BadInventory([_mistake(document.span(("ansible",)), problem.summary, problem.hint)]) from None
    return Files({name: msgspec.convert(values, Entry) for name, values in found.hosts.items()}, found.groups)


def _with_groups(hosts: Mapping[str, Entry], groups: Mapping[str, Group]) -> dict[str, Entry]:
    """Each host with what its groups give it, the first group first; hosts that only a group names are hosts too."""
    found = dict(hosts)
    for group in groups.values():
        for name in group.hosts:
            found[name] = _over(found.get(name, Entry()), group)
    return found


def _over(own: Entry, below: Entry) -> Entry:
    """A host with what it does not say itself from another entry. Variables and labels are merged, marks and rules add up."""
    plain = Entry()
    unset = {key: getattr(below, key) for key in Entry.__struct_fields__ if getattr(own, key) == getattr(plain, key)}
    merged = {"vars": {**below.vars, **own.vars}, "labels": {**below.labels, **own.labels}}
    protect = tuple(dict.fromkeys((*own.protect, *below.protect)))
    return msgspec.structs.replace(own, **{**unset, **merged, "protect": protect})


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint for a name that nothing knows: the nearest one of the inventory."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else ""


def _words(via: str | list[str], name: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(via)) if isinstance(via, str) else tuple(via)
    except ValueError as error:
        raise ResolveFailed(
            f"`via:` of `{name}` cannot be split into words: {error}", "close the quote, or write `via:` as a list"
        ) from None


def _ssh_text(name: str, entry: Entry) -> str:
    host = entry.host or name
    if ":" in host and entry.port and not host.startswith("["):
        host = f"[{host}]"
    return (f"{entry.user}@" if entry.user else "") + host + (f":{entry.port}" if entry.port else "")
