"""Fixtures for all tests. Each test gets a state folder of its own, so that nothing reaches the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import relay_to, sshd, start_sshd

__all__ = ["local_host", "own_state", "relay_to", "sshd", "start_sshd"]


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh `$XDG_STATE_HOME`."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def local_host() -> Iterator[object]:
    """This machine, with a real helper."""
    from runbook.hosts.local import connect_local

    host = connect_local()
    yield host
    host.close()
