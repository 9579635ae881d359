"""A host, and a step context with a small package to patch on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import Host, ProcessId
from runbook.hosts.local import connect_local
from tests.support.context import LocalContext
from tests.support.patching import Box


@pytest.fixture(scope="module")
def patch_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One helper for a file of tests, with a state folder of its own."""
    host = connect_local(env={"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))})
    yield host
    host.close()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A package to patch and a server that imports it."""
    return Box(tmp_path / "box")


@pytest.fixture
def patch_ctx(patch_host: Host, box: Box, tmp_path: Path) -> Iterator[LocalContext]:
    """A run of its own: whatever it launched is ended, whatever it patched restored."""
    run = "r" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:10]
    ctx = LocalContext(patch_host, tmp_path / "run", run=run, launches={"server": box.body()}).at("taps")
    yield ctx
    if not patch_host.glob(f"{patch_host.facts.state_dir}/runs/{run}/*"):
        return
    launches = patch_host.keeper(run).launches
    patch_host.kill([ProcessId(one.pid, one.start) for one in launches if one.ended is None], ["KILL 5s"])
    patch_host.restore(run)
    patch_host.retire(run)
