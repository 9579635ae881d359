"""A real engine seen from outside: its processes by name, and what `runbook diagnose` says of it."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any, NamedTuple

from runbook.lab import processes
from tests.e2e.cli import runbook
from tests.real.engines import Engine


class Stage:
    """The processes of one start on a lab."""

    def __init__(self, state: Path, engine: Engine, port: int) -> None:
        self.state, self.engine, self.port = state, engine, port

    def find(self, victim: str) -> processes.Process | None:
        """The engine's process of that name."""
        daemon = json.loads((self.state / "runbook" / "lab" / "lab.json").read_text())
        below = processes.below(processes.Process(daemon["pid"], daemon["start"]))
        return next((one for one in below if re.search(self.engine.workers[victim], one.title)), None)


class Looked(NamedTuple):
    """What `diagnose` said: verdict/kind, and the title of whom it names."""

    verdict: str
    culprit: str
    reason: str


def diagnose(stage: Stage, *flags: Any) -> Looked:
    """One look at the server by its port."""
    done = runbook("diagnose", "lab", "--port", stage.port, "--json", *flags, state=stage.state, seconds=300)
    told = json.loads(done.out) if done.out.strip().startswith("{") else {"verdict": f"exit {done.code}: {done.err}"}
    verdict = f"{told['verdict']}/{told['kind']}" if told.get("kind") else told["verdict"]
    return Looked(verdict, (told.get("culprit") or {}).get("title") or "", told.get("reason") or "")


def free_port() -> int:
    """A TCP port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
