"""Fixtures over real servers, for tests/conftest.py."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.relay import Relay
from tests.support.sshd import Sshd, until


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Start as many servers as a test wants: `start_sshd(extra="MaxSessions 1")`."""
    servers: list[Sshd] = []

    def start(extra: str = "") -> Sshd:
        folder = tmp_path / f"sshd{len(servers)}"
        folder.mkdir()
        servers.append(Sshd(folder, extra).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def sshd(start_sshd: Callable[..., Sshd]) -> Sshd:
    """A real sshd; its alias `box` stands in `sshd.client_config`."""
    return start_sshd()


@pytest.fixture
def relay_to() -> Iterator[Callable[..., Relay]]:
    """Start relays: `relay_to(host, port, delay_s=0.01)`."""
    relays: list[Relay] = []

    def start(host: str, port: int, delay_s: float = 0.0) -> Relay:
        relays.append(Relay(host, port, delay_s).start())
        return relays[-1]

    yield start
    for relay in relays:
        relay.close()


@pytest.fixture
def other_user() -> Iterator[str]:
    """A system user that may log in by key, where the tests may make one; else their own account."""
    if os.geteuid() != 0:
        yield pwd.getpwuid(os.getuid()).pw_name
        return
    name = f"rb{os.getpid()}"
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", "--password", "*"]
    subprocess.run(["useradd", *options, name], check=True, capture_output=True)
    yield name
    until(lambda: subprocess.run(["userdel", name], capture_output=True, check=False).returncode == 0, 10, "no process of it is left")
