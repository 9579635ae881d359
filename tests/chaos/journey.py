"""The run that the links are broken under: a server that loads for a while, a wait, a long command, a request, a fetched file.

Every part leaves a trace that tells whether it happened exactly once.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from runbook.onhost import boot
from tests.chaos.frame import Outcome
from tests.chaos.net_host import NetHost
from tests.steps.serving import SMALL_SERVER
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
MOST_S = 170.0
PORT = 8731  # in a network namespace of its own nobody else has it
STEPS = ("server", "up", "work", "ask", "take")


class Journey:
    """One run of it on one host."""

    def __init__(
        self, host: NetHost, folder: Path, *, load_s: float = 3.0, work_s: float = 4.0, timeout_s: float = 120.0, **target: Any
    ) -> None:
        self.host, self.folder = host, folder
        self.runs, self.out, self.once = folder / "runs", folder / "out", host.folder / "once"
        place = {"host": host.alias, "python": sys.executable, **target}
        (folder / "hosts.yaml").write_text(yaml.safe_dump({"hosts": {"gpu": place}}))
        command = [sys.executable, str(SMALL_SERVER), "--port", str(PORT), "--load", str(load_s)]
        work = f"echo $$ >> {self.once}; for n in $(seq {max(1, round(work_s / 0.2))}); do echo tick $n; sleep 0.2; done; echo done"
        steps = [
            {"id": "server", "launch": {"command": command, "port": PORT, "profile": "sglang", "settle": "300ms"}},
            {"id": "up", "wait_healthy": {"server": "server"}, "timeout": f"{timeout_s:.0f}s"},
            {"id": "work", "run": work, "timeout": f"{timeout_s:.0f}s"},
            {"id": "ask", "request": {"server": "server", "get": "/get_server_info"}, "timeout": f"{timeout_s:.0f}s"},
            {"id": "take", "fetch": str(self.once), "timeout": f"{timeout_s:.0f}s"},
        ]
        (folder / "book.yaml").write_text(json.dumps({"runbook": 1, "hosts": {"box": ["gpu"]}, "steps": steps}))
        self.child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """As a user would."""
        env = {**os.environ, "XDG_STATE_HOME": str(self.runs), "RUNBOOK_SSH_CONFIG": str(self.host.client_config), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "runbook.cli.main", "run", "book.yaml", "--json", "--out", str(self.out)]
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            argv, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def journal(self) -> str:
        """The journal so far."""
        path = self.out / "events.jsonl"
        return path.read_text() if path.exists() else ""

    def wait_for(self, step: str, seconds: float = 60.0) -> None:
        """Until a step has begun."""
        until(lambda: self.over() or (self.connects() and re.search(rf'"event":"step_started".*"step":"{step}"', self.journal)), seconds)

    def over(self) -> bool:
        """Whether the controller has ended."""
        assert self.child is not None
        return self.child.poll() is not None

    def connects(self) -> int:
        """How often the host was connected."""
        return self.journal.count('"event":"host_connected"')

    def end(self, expect: str = "passed", *, note: str = "", once: int = 1, unheard: bool = False) -> Outcome:
        """Its end, held against what it should be. `unheard`: its goodbye may not have arrived, so its helper ends a few minutes later."""
        assert self.child is not None
        try:
            out, err = self.child.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
            return Outcome(False, "no end", time.monotonic() - self.began, note="the controller did not come to an end")
        seconds = time.monotonic() - self.began
        try:
            answer = json.loads(out)
        except ValueError:
            return Outcome(False, "no answer", seconds, note=f"exit {self.child.returncode}: {err[-300:]}")
        left = [*answer["left_behind"], *self.on_host(unheard)]
        ran = len(self.once.read_text().split()) if self.once.exists() else 0
        connects = f"{self.connects()} connections"
        ok = answer["verdict"] == expect and not left and ran == once
        why = "" if ok else f"; expected {expect}, the command ran {ran} times; {answer['reason'][:200]}"
        return Outcome(ok, answer["verdict"], seconds, tuple(left), "; ".join(filter(None, [note, connects])) + why)

    def on_host(self, unheard: bool = False) -> list[str]:
        """What is left there: processes, and files of the run. Given a moment: a helper ends a little after its controller."""
        deadline = time.monotonic() + 8
        while True:
            state = self.host.seen_inside(self.host.state)
            files = [str(path.relative_to(state)) for path in state.rglob("*") if path.is_file() and path.name != "filling"]
            titles = [title for title in self.host.titles() if not (unheard and boot.STUB in title)]
            found = [*(f"process {title[:60]}" for title in titles), *files]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


def broken(
    rng: random.Random, folder: Path, fault: Callable[[NetHost, random.Random], str], *, most_s: float = 12.0, **more: Any
) -> Outcome:
    """Break the link under a random step for a random time; the run must end as if nothing had been."""
    with NetHost(folder / "host") as host:
        journey = Journey(host, folder, **more)
        journey.start()
        step, after, lasts = rng.choice(STEPS[:4]), rng.uniform(0.0, 1.5), rng.uniform(1.0, most_s)
        journey.wait_for(step)
        time.sleep(after)  # the moment of the fault is what is random here
        said = fault(host, rng)
        time.sleep(lasts)
        over = journey.over()
        host.heal()
        return journey.end(note=f"{said} for {lasts:.1f} s in `{step}`{', goodbye unheard' if over else ''}", unheard=over)
