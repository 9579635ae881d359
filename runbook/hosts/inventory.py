"""From the text of a target to a place: `local`, `lab`, a name of hosts.yaml, an ssh alias or an address.

hosts.yaml stands in the working folder or in `$XDG_CONFIG_HOME/runbook/`; of two, the first wins name by name:

    hosts:
      big-box: {host: gpu7.lab, user: me, port: 2222, via: docker exec -i sglang, python: /opt/conda/bin/python, gpus: [0, 1]}
      shared-box: {host: gpu8.lab, shared: true, protect: [{user: alice}, {port: 9090, why: monitoring}, {file: /opt/sglang/*}]}
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union

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


E = TypeVar("E", Entry, Group)


class Files(NamedTuple):
    """What hosts.yaml says; the hosts have what their groups give them."""

    hosts: dict[str, Entry]
    groups: dict[str, list[str]]


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
    for path in (config / "runbook" / FILE, Path(cwd or working_folder()) / FILE):
        found = read_file(path)
        hosts.update(found.hosts)
        groups.update(found.groups)
    return Inventory(hosts, state / "runbook" / "lab" / "lab.json", groups)


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
    """A hosts.yaml that is not valid. `diagnostic` is the same with its place apart."""

    def __init__(self, span: Span | None, summary: str, hint: str) -> None:
        super().__init__(f"{span}: {summary}", hint)
        self.diagnostic = Diagnostic(code="bad-inventory", span=span, summary=summary, hint=hint)


def read_hosts(path: Path) -> dict[str, Entry]:
    """The hosts of one file; none when there is no such file. Raises BadInventory with the place of the first mistake."""
    return read_file(path).hosts


def read_file(path: Path) -> Files:
    """Hosts and groups of one file and of the Ansible inventory that it names. Raises BadInventory with the place of the first mistake."""
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        return Files({}, {})
    except OSError as error:
        raise BadInventory(Span(str(path), 1, 1), f"it cannot be read: {error.strerror}", "check its rights") from None
    from runbook.lang.yaml_loader import load as load_yaml

    document, found = load_yaml(source, str(path))
    wrong = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    if document is None or wrong:
        raise BadInventory(wrong[0].span, wrong[0].summary, wrong[0].hint or "correct the line")
    top = document.data if document.data is not None else {"hosts": {}}
    if not isinstance(top, dict) or not top or set(top) - {"hosts", "groups", "ansible"} or not isinstance(top.get("hosts") or {}, dict):
        summary = "hosts.yaml has the keys `hosts:` (names and their hosts), `groups:`, `ansible:`"
        raise BadInventory(document.span(()) or Span(str(path), 1, 1), summary, "write `hosts: {NAME: {host: ADDRESS}}`")
    hosts = {name: _convert(document, ("hosts", name), value, Entry) for name, value in (top.get("hosts") or {}).items()}
    given = top.get("groups") or {}
    if not isinstance(given, dict):
        raise BadInventory(
            document.span(("groups",)), "`groups:` is a mapping of names to groups", "write `groups: {NAME: {hosts: [A, B]}}`"
        )
    groups = {
        name: _convert(document, ("groups", name), {"hosts": value} if isinstance(value, list) else value, Group)
        for name, value in given.items()
    }
    clash = next((name for name in groups if name in hosts or name in ("local", "lab")), None)
    if clash:
        raise BadInventory(document.key_span(("groups", clash)), f"`{clash}` is a host and a group", "rename one")
    foreign = _foreign(document, top.get("ansible"), path)
    known = {**foreign.hosts, **{name: _over(own, foreign.hosts.get(name, Entry())) for name, own in hosts.items()}}
    return Files(_with_groups(known, groups), {**foreign.groups, **{name: one.hosts for name, one in groups.items()}})


def _convert(document: Document, at: tuple[str, str], value: Any, into: type[E]) -> E:
    try:
        return msgspec.convert({} if value is None else value, into)
    except msgspec.ValidationError as error:
        kind = "host" if into is Entry else "group"
        fields = ", ".join(f"`{field}`" for field in into.__struct_fields__)
        raise BadInventory(document.span(at), f"{kind} `{at[1]}`: {_plain(error)}", f"its keys are {fields}") from None


def _foreign(document: Document, named: Any, path: Path) -> Files:
    """Hosts and groups of the Ansible inventory that the file names, relative to itself."""
    if named is None:
        return Files({}, {})
    from runbook.hosts.inventory_sources import ansible

    span = document.span(("ansible",))
    if not isinstance(named, str):
        raise BadInventory(span, "`ansible:` is the path of an inventory", "write `ansible: inventory.ini`")
    try:
        found = ansible(path.parent / Path(named).expanduser())
    except ResolveFailed as problem:
        raise BadInventory(span, problem.summary, problem.hint) from None
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


def _plain(error: msgspec.ValidationError) -> str:
    text = str(error).replace(" | null", "").replace("Object contains ", "").replace(" - at `$.", " at `")
    return text[:1].lower() + text[1:]


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
