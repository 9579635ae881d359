"""Who may import whom. Read from the source, imports inside functions too; if one of yours breaks this, move the code."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "runbook"

OURS: dict[str, set[str]] = {
    "model": set(),
    "lang": {"model"},
    "playbook": {"model", "lang"},
    "steps": {"model", "lang", "probes", "hosts.base", "diagnose"},
    "diagnose": {"model"},
    "probes": {"model"},
    # Both ends of a channel speak from one file: the frames of `onhost` are read by the session, its sources are sent.
    # The data of hosts.yaml are walked by the types of its structs, as those of a playbook are.
    "hosts": {"model", "lang", "onhost", "playbook.near", "playbook.problems", "playbook.shape"},
    "onhost": set(),
    # The engine fills in a step's body by the types that the checks walk, and builds it as they would.
    "engine": {"model", "lang", "steps", "diagnose", "hosts.base", "playbook"},
    "render": {"model"},
    "tickets": {"model"},
    "lab": {"model"},
    "shell_script": {"model", "lang"},
}
"""What a package may import of ours, besides itself. `cli` may import all."""

THEIRS: dict[str, set[str]] = {
    "model": set(),
    "lang": {"yaml", "jsonschema"},
    "playbook": set(),
    "steps": set(),
    "diagnose": set(),
    "probes": set(),
    "hosts": {"fabric", "paramiko", "invoke", "httpx", "httpcore", "tenacity"},
    "onhost": set(),
    "engine": set(),
    "render": {"rich", "httpx", "tenacity"},
    "tickets": {"httpx", "tenacity"},
    "lab": {"asyncssh", "torch", "safetensors", "setproctitle", "starlette", "uvicorn", "lab_engine"},
    "shell_script": set(),
    "cli": {"click", "mcp"},
}
"""Third parties, besides msgspec: the nouns are its structs, so every package but onhost may."""

ONE_FILE = {
    "fabric": {"hosts"},
    "httpx": {"hosts", "render", "tickets"},
    "rich": {"render"},
    "tenacity": {"hosts", "tickets"},
    "yaml": {"lang"},
    "click": {"cli"},
    "mcp": {"cli"},
}
"""Each door to a library is one file per package, and stands in these packages only."""
MANY_FILES = {"click", "yaml"}
"""Libraries that a whole package is about."""
ON_ITS_OWN = {"onhost", "lab"}
"""Packages that are programs of their own, on a host."""
SENT = {"probes/payload.py", "probes/fallback.py", "onhost/meta_build.py"}
"""Source that is put into a server, or read by the interpreter of one, and runs there."""


def _files() -> list[Path]:
    # The lab's engine is a program of its own: it is copied to the lab's home and imports itself from there.
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "lab/engine" not in path.as_posix()]


def _package(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import, `from x import y` as x.y."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(("runbook", *path.relative_to(PACKAGE).parts[: -node.level])) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def _all() -> list[tuple[Path, int, str]]:
    return [(path, line, name) for path in _files() for line, name in _imports(path)]


def _is_stdlib(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names


def _breaks(path: Path, name: str) -> bool:
    package = _package(path)
    top = name.split(".")[0]
    if top != "runbook":
        return not _is_stdlib(name) and top not in THEIRS.get(package, set()) and (top != "msgspec" or package == "onhost")
    inner = name.split(".", 1)[1] if "." in name else ""
    if package == "cli" or inner in ("", "__version__") or inner.split(".")[0] == package:
        return False
    return not any(inner == allowed or inner.startswith(f"{allowed}.") for allowed in OURS.get(package, set()))


def test_every_import_is_in_the_table():
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {_package(path) or 'runbook'} may not import {name}"
        for path, line, name in _all()
        if _breaks(path, name)
    ]
    assert not broken, "\n".join(broken)


def test_the_table_speaks_of_every_package():
    packages = {_package(path) for path in _files()} - {"", "cli"}
    assert packages <= set(OURS) and packages <= set(THEIRS), packages - set(OURS)


@pytest.mark.parametrize("library", sorted(ONE_FILE))
def test_one_file_is_the_only_door_to_a_library(library):
    doors = {path for path, _, name in _all() if name.split(".")[0] == library}
    assert {_package(path) for path in doors} <= ONE_FILE[library]
    if library not in MANY_FILES:
        for package in ONE_FILE[library]:
            inside = [path.name for path in doors if _package(path) == package]
            assert len(inside) <= 1, f"{package} has {len(inside)} doors to {library}: {inside}"


def test_only_the_clock_touches_time():
    """Time is a parameter everywhere else: so a test can move it."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path, _, name in _all()
        if name.split(".")[0] == "time" and _package(path) not in ON_ITS_OWN
    }
    assert found - SENT == {"model/clock.py"}


def test_only_the_command_line_prints_exits_and_reads_argv():
    broken = []
    for path in _files():
        if _package(path) in {"cli", *ON_ITS_OWN} or path.relative_to(PACKAGE).as_posix() in SENT:
            continue
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "exit", "input"):
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.func.id}")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in (("sys", "argv"), ("sys", "exit"))
            ):
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}: sys.{node.attr}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("file", "name", "breaks"),
    [
        ("model/x.py", "runbook.lang.expressions", True),
        ("steps/x.py", "runbook.hosts.ssh.Connection", True),
        ("steps/x.py", "runbook.hosts.base.Host", False),
        ("engine/x.py", "runbook.cli.main", True),
        ("onhost/x.py", "msgspec", True),
        ("onhost/x.py", "runbook.model.units", True),
        ("playbook/x.py", "jsonschema", True),
        ("lang/x.py", "yaml.YAMLError", False),
        ("cli/x.py", "runbook.hosts.ssh", False),
        ("cli/x.py", "rich", True),
    ],
)
def test_the_table_means_what_it_says(file, name, breaks):
    assert _breaks(PACKAGE / file, name) is breaks
