"""What the commands read from disk: playbooks, vars files, names of engine profiles."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runbook.cli import library
from runbook.cli.profiles import profiles
from runbook.cli.text_checks import text_problems
from runbook.cli.yaml_files import yaml_files
from runbook.model.diagnostic import Diagnostic, Severity
from runbook.model.playbook import Playbook, Target

if TYPE_CHECKING:
    from runbook.hosts.inventory import Entry, Inventory

PACKAGE = Path(__file__).resolve().parents[1]
MOST_BYTES = 16 * 2**20
"""More than any text the loader takes; so a wrong file name cannot fill the memory."""
SUFFIXES = (".yaml", ".yml")
OURS = ("runbook", "profile")
"""Keys at the left edge by which playbooks and engine profiles are known."""
_OURS = re.compile(rb"""^(?:\xef\xbb\xbf)?[ {]{0,4}["']?(?:runbook|profile)["']? ?:""", re.MULTILINE)


def read_bounded(file: str) -> bytes:
    """A file's first bytes; raises OSError, also for a named pipe or a device, which may never give any."""
    mode = os.stat(file).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or file.startswith(("/dev/fd/", "/proc/self/fd/"))):
        raise OSError(errno.EINVAL, "it is no regular file", file)
    with open(file, "rb") as stream:
        return stream.read(MOST_BYTES)


def our_files(names: Sequence[str]) -> list[str]:
    """Files as they are named; of a folder the playbooks and profiles, so that vars files and other YAML in it are no mistakes.

    Raises click.UsageError when there are none.
    """
    found = [file for name in names for file in yaml_files([name]) if file == name or _is_ours(file)]
    if not found:
        raise click.UsageError(
            f"no playbook and no profile in {', '.join(names)}: such a file has `runbook: 1` or `profile:` at its left edge"
        )
    return list(dict.fromkeys(found))


def _is_ours(file: str) -> bool:
    try:
        return _OURS.search(read_bounded(file)) is not None
    except OSError:
        return True  # said with its place by the check


def libraries() -> list[Path]:
    """Folders whose playbooks can be run by name: the working directory's and the packaged one."""
    packaged = PACKAGE / "_playbooks"
    return [Path("playbooks"), packaged if packaged.is_dir() else PACKAGE.parent / "playbooks"]


def locate(name: str) -> str:
    """A playbook's path: the path itself, or a name (`eagle3_fusion`) from one of the libraries."""
    if os.sep not in name and not os.path.exists(name):
        for folder in libraries():
            for suffix in ("", *SUFFIXES):
                if (folder / f"{name}{suffix}").is_file():
                    return str(folder / f"{name}{suffix}")
    return name


def profile_names(playbook: str = "") -> frozenset[str]:
    """Names of all engine profiles on a playbook's search path."""
    return profiles(playbook).names()


def read_roles(options: Sequence[str]) -> dict[str, list[str]]:
    """`-H ROLE=TARGET[,TARGET]`, repeated for more roles or more targets; `slurm:JOB` is that job's nodes."""
    roles: dict[str, list[str]] = {}
    for option in options:
        role, equals, targets = option.partition("=")
        if not equals or not role or not targets:
            raise click.UsageError(f"`-H {option}` is no ROLE=TARGET: write for example `-H gpu=big-box`")
        roles.setdefault(role, []).extend(name for target in targets.split(",") for name in _nodes(target))
    return roles


def _nodes(target: str) -> list[str]:
    if not target.startswith("slurm:"):
        return [target]
    from runbook.hosts.base import ResolveFailed
    from runbook.hosts.inventory_sources import slurm

    try:
        return slurm(target) or [target]
    except ResolveFailed as problem:
        raise click.UsageError(f"{problem.summary}; {problem.hint}") from None


def load(name: str, overrides: Sequence[str] = (), roles: Sequence[str] = ()) -> tuple[Playbook | None, list[Diagnostic], str]:
    """A checked playbook, what is wrong with it, and the file it was read from."""
    from runbook.playbook.overrides import read_overrides

    values, found = read_overrides(overrides, read_bounded)
    playbook, diagnostics, file = load_with(name, values, read_roles(roles))
    return (None if found else playbook), found + diagnostics, file


def check_file(name: str, overrides: Sequence[str] = ()) -> list[Diagnostic]:
    """What is wrong with a playbook, or with an engine profile: a file with `profile:` and without `runbook:` at its left edge."""
    file = locate(name)
    try:
        source = read_bounded(file)
    except OSError:
        source = b""
    begins = {key: re.search(rb"^(?:\xef\xbb\xbf)?" + key.encode() + rb":", source, re.MULTILINE) is not None for key in OURS}
    if begins["profile"] and not begins["runbook"]:
        return profiles(file).check(file, source)[1]
    playbook, found, _ = load(name, overrides)
    return found + _warned_of_launches(playbook) if playbook is not None else found


def _warned_of_launches(playbook: Playbook) -> list[Diagnostic]:
    """Launches that `run` would refuse for the way in; another host may be named on its command line, so no errors here."""
    from msgspec.structs import replace

    from runbook.cli.unheld import unheld

    return [replace(one, severity=Severity.WARNING) for one in unheld(playbook, read_inventory()[0])]


def load_with(name: str, overrides: Mapping[str, Any], roles: Mapping[str, Sequence[str]]) -> tuple[Playbook | None, list[Diagnostic], str]:
    """As `load`, with options that are parsed already."""
    from runbook.playbook.build import load_playbook
    from runbook.playbook.overrides import unreadable
    from runbook.steps import TABLE

    file = locate(name)
    try:
        source = read_bounded(file)
    except OSError as error:
        return None, [unreadable(file, error, "`runbook list` shows the playbooks that have a name")], file
    inventory, wrong = read_whole_inventory()
    hosts = inventory.hosts if inventory else {}
    groups = inventory.groups if inventory else {}
    found_profiles = profiles(file)
    playbook, found = load_playbook(
        source,
        file,
        table=TABLE,
        profiles=found_profiles.names(),
        profile=found_profiles.known,
        hosts=[*hosts, *groups],
        groups=groups,
        overrides=overrides,
        roles=roles,
        host_vars={name for entry in hosts.values() for name in entry.vars},
        read=read_bounded,
        find=library.find,
        known=library.known,
    )
    wrong += text_problems(playbook) if playbook else []
    bad = playbook is None or any(problem.severity is Severity.ERROR for problem in wrong)
    return (None if bad or playbook is None else with_host_vars(playbook, hosts)), wrong + found, file


def read_inventory() -> tuple[dict[str, Entry], list[Diagnostic]]:
    """The hosts of hosts.yaml, and what is wrong with the file."""
    inventory, wrong = read_whole_inventory()
    return (inventory.hosts if inventory else {}), wrong


def read_whole_inventory() -> tuple[Inventory | None, list[Diagnostic]]:
    """Hosts and groups of hosts.yaml with what is rarely meant there, or what is wrong with the file."""
    from runbook.hosts.inventory import BadInventory, load

    try:
        inventory = load()
    except BadInventory as problem:
        return None, problem.diagnostics
    return inventory, list(inventory.warnings)


def with_host_vars(playbook: Playbook, hosts: Mapping[str, Entry]) -> Playbook:
    """Each target with what hosts.yaml says of its name: variables, where the playbook's own win; rules and marks, where both count."""
    from msgspec.structs import replace

    def known(target: Target) -> Target:
        entry = hosts.get(target.target)
        if entry is None:
            return target
        return replace(
            target,
            vars={**entry.vars, **target.vars},
            protect=tuple(dict.fromkeys((*entry.protect, *target.protect))),
            production=entry.production or target.production,
            shared=entry.shared or target.shared,
        )

    return replace(playbook, hosts={role: tuple(map(known, targets)) for role, targets in playbook.hosts.items()})


def source_texts(diagnostics: Sequence[Diagnostic]) -> dict[str, str]:
    """Texts of the files that diagnostics speak of, for their code frames; what cannot be shown as text is left out."""
    texts: dict[str, str] = {}
    for file in dict.fromkeys(diagnostic.span.file for diagnostic in diagnostics if diagnostic.span):
        try:
            texts[file] = read_bounded(file).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
    return texts
