"""Hosts that the contract suite runs on. Another kind is one more entry of KINDS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host
from runbook.hosts.local import connect_local
from runbook.model.clock import SystemClock
from runbook.model.playbook import Target
from tests.support.sshd import Sshd

Opener = Callable[[Path], tuple[Host, Callable[[], None]]]
"""Given a folder: a connected host, and what ends everything that was started for it."""


def old_python() -> str:
    """The oldest interpreter here that the helper supports; our own when there is no other that runs."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (8, 9, 10):
        folders = [*(str(path / "bin") for path in sorted(managed.glob(f"3.{minor}.*"))), os.environ["PATH"]]
        found = shutil.which(f"python3.{minor}", path=":".join(folders))
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:  # a shim may stand for nothing
            return found
    return sys.executable


def _local(folder: Path) -> tuple[Host, Callable[[], None]]:
    host = connect_local()
    return host, host.close


def _old_python(folder: Path) -> tuple[Host, Callable[[], None]]:
    host = connect_local("old", python=old_python(), via=["env", "LC_ALL=C", f"XDG_STATE_HOME={folder}"])
    return host, host.close


def _ssh(folder: Path) -> tuple[Host, Callable[[], None]]:
    from runbook.hosts.connect import CONFIG_VARIABLE, connect

    server = Sshd(folder).start()
    # the other kinds use this process's interpreter too; the account's own python3 may be anything
    box = Target(target="box", python=sys.executable)
    host = connect(box, clock=SystemClock(), env={**os.environ, CONFIG_VARIABLE: str(server.client_config)}, cwd=folder)

    def end() -> None:
        host.close()
        server.stop()

    return host, end


KINDS: list[Any] = [
    pytest.param(_local, id="local"),
    pytest.param(_old_python, id="oldest python, behind a prefix", marks=pytest.mark.slow),
    pytest.param(_ssh, id="ssh", marks=pytest.mark.e2e),
]
