"""A small package to patch and a real server that imports it, for tests of patch, restore, expect_probe and grep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from runbook.hosts.base import LaunchSpec
from runbook.playbook.convert import dec_hook
from runbook.steps.base import Launched
from tests.support.context import LocalContext

MODEL = """\
\"\"\"The draft model.\"\"\"


class Model:
    def forward(self, batch):
        hidden = batch.hidden
        if len(hidden) > 3:
            hidden = hidden[:3]
        return hidden
"""
SERVER = """\
import sys, time
from engine.model import Model

class Batch:
    def __init__(self, hidden): self.hidden = hidden

model = Model()
print("ready", flush=True)
with open(sys.argv[1]) as requests:
    while True:
        line = requests.readline()
        if line.startswith("forward"):
            model.forward(Batch([1] * int(line.split()[1])))
            print("served", line.strip(), flush=True)
        elif line.startswith("stop"):
            break
        elif not line:
            time.sleep(0.01)
"""


def make(kind: type, body: dict[str, Any]) -> Any:
    """A step from its YAML mapping, units read."""
    return msgspec.convert(body, kind, dec_hook=dec_hook)


class Box:
    """A folder with the package `engine`, a server script, and the file through which requests reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "engine" / "model.py"
        self.requests = folder / "requests"
        self.model.parent.mkdir(parents=True)
        (folder / "engine" / "__init__.py").write_text("")
        self.model.write_text(MODEL)
        (folder / "server.py").write_text(SERVER)
        self.requests.touch()

    def argv(self) -> list[str]:
        """The server's command."""
        return [sys.executable, str(self.folder / "server.py"), str(self.requests)]

    def body(self) -> dict[str, Any]:
        """The launch as patch's `for:` sees it."""
        return {"command": self.argv(), "cwd": str(self.folder), "env": {}, "id": "server"}

    def request(self, *lines: str) -> None:
        """Send requests."""
        with self.requests.open("a") as out:
            out.write("".join(line + "\n" for line in lines))

    def start(self, ctx: LocalContext, step: str = "server", shell: str = "") -> Launched:
        """Launch the server under the run's keeper and register it."""
        ctx.host.ensure_keeper(ctx.run.id)
        argv = () if shell else tuple(self.argv())
        state = ctx.host.launch(LaunchSpec(run=ctx.run.id, id=step, argv=argv, shell=shell, cwd=str(self.folder)))
        launched = Launched(step=step, host=ctx.host.name, state=state, profile=ctx.profile("generic"), port=None, env={})
        ctx.keep(launched)
        ctx.watch_log(state.log)
        return launched
