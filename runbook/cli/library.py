"""Where included playbooks are found: beside the file, in ./playbooks, in the user's folder, with runbook, in installed packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from runbook.playbook.library import SUFFIXES

GROUP = "runbook.playbooks"
"""Entry points of packages that hold playbooks: NAME = the package in whose folder they lie."""
HERE = ("./", "../", "~", os.sep)
"""How a name begins that is a path."""


def folders(file: str) -> Iterator[Path]:
    """Where a playbook that `file` includes may lie; the first that has it wins."""
    from runbook.cli.sources import libraries

    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    working, *packaged = libraries()
    for folder in (Path(file).parent, working, config / "runbook" / "playbooks", *packaged):
        yield folder
        yield folder / "lib"


def find(name: str, file: str) -> str | None:
    """The path of what `file` includes as `name`; None when there is none."""
    places = [Path(file).parent] if name.startswith(HERE) else folders(file)
    for folder in places:
        if found := _in(folder, os.path.expanduser(name)):
            return found
    return None if name.startswith(HERE) else _in_packages(name)


def known(file: str) -> list[str]:
    """The names by which `file` could include a playbook."""
    return sorted({path.stem for folder in folders(file) for suffix in SUFFIXES[1:] for path in folder.glob(f"*{suffix}")})


def _in(folder: Path, name: str) -> str | None:
    paths = (os.path.join(folder, name + suffix) for suffix in SUFFIXES)
    return next((path for path in paths if os.path.isfile(path)), None)


def _in_packages(name: str) -> str | None:
    """`launch` in any of the packages, `team/launch` in that of the entry point `team`."""
    head, slash, rest = name.partition("/")
    for package, folder in packages().items():
        if package == head and slash and (found := _in(folder, rest)):
            return found
        if found := _in(folder, name):
            return found
    return None


def packages() -> dict[str, Path]:
    """The folders of installed packages of playbooks, by the name of their entry point. A package is found, not imported."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found: dict[str, Path] = {}
    for point in sorted(entry_points(group=GROUP)):
        try:
            spec = find_spec(point.value)
        except (ImportError, ValueError):
            continue  # a name without a package behind it has no playbooks
        for place in spec.submodule_search_locations or () if spec else ():
            found.setdefault(point.name, Path(place))
    return found
