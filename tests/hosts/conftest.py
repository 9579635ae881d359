"""A second account for the tests of hosts, and connected hosts of each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runbook.hosts.base import Host
from tests.support.fixtures import other_user
from tests.support.hosts import KINDS

__all__ = ["other_user"]


@pytest.fixture(scope="module", params=KINDS)
def connected_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One connection per kind and test file; a test must not close it."""
    host, end = request.param(tmp_path_factory.mktemp("host"))
    yield host
    end()
