"""Fixtures for all tests. Each test gets a state folder of its own, so that nothing reaches the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.fixtures import relay_to, sshd, start_sshd

# A loaded machine is slow without anything being wrong; what a property costs is not what it says.
hypothesis.settings.register_profile(
    "runbook", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
)
hypothesis.settings.load_profile("runbook")

__all__ = ["local_host", "own_state", "relay_to", "sshd", "start_sshd"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Property tests carry their own mark: they take CPU, and the fast tier leaves them to the whole suite."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh `$XDG_STATE_HOME`, and nobody's leases."""
    folder, leases = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("leases")
    leases.chmod(0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv("RUNBOOK_LEASES", str(leases))
    return folder


@pytest.fixture
def local_host() -> Iterator[object]:
    """This machine, with a real helper."""
    from runbook.hosts.local import connect_local

    host = connect_local()
    yield host
    host.close()
