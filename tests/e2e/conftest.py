"""One lab for all stories; each story gets a port of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Outcome, runbook


class Lab:
    """A running lab and its folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.home = state / "runbook" / "lab" / "home"

    def runbook(self, *args: str | Path, **more: Any) -> Outcome:
        """Run a command that sees this lab."""
        return runbook(*args, state=self.state, **more)

    def processes(self) -> list[str]:
        """Titles of what runs on the lab, its own server aside."""
        status = json.loads(self.runbook("lab", "status", "--json").out)
        return [row["title"] for row in status["processes"]]

    def host_files(self) -> list[str]:
        """Files of runs that are still on the host."""
        folder = self.home / ".state"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab for this session."""
    found = Lab(tmp_path_factory.mktemp("lab-state"))
    up = found.runbook("lab", "up")
    assert up.code == 0, up.err
    yield found
    down = found.runbook("lab", "down")
    assert down.code == 0, down.err


@pytest.fixture
def port() -> int:
    """A free TCP port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
