"""Hosts that the contract suite runs on. Another kind is one more entry of KINDS."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host
from runbook.hosts.local import connect_local

Opener = Callable[[Path], tuple[Host, Callable[[], None]]]
"""Given a folder: a connected host, and what ends everything that was started for it."""


def old_python() -> str:
    """The oldest interpreter here that the helper supports; our own when there is no other."""
    for minor in (8, 9, 10):
        found = shutil.which(f"python3.{minor}", path=f"{os.environ['PATH']}:{_pyenv(minor)}")
        if found:
            return found
    return sys.executable


def _pyenv(minor: int) -> str:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return ":".join(str(path / "bin") for path in sorted(root.glob(f"3.{minor}.*")))


def _local(folder: Path) -> tuple[Host, Callable[[], None]]:
    host = connect_local()
    return host, host.close


def _old_python(folder: Path) -> tuple[Host, Callable[[], None]]:
    host = connect_local("old", python=old_python(), via=["env", "LC_ALL=C", f"XDG_STATE_HOME={folder}"])
    return host, host.close


KINDS: list[Any] = [pytest.param(_local, id="local"), pytest.param(_old_python, id="oldest python, behind a prefix")]
