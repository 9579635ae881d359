"""Fixtures over real servers, for tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.relay import Relay
from tests.support.sshd import Sshd


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
