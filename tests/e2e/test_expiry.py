"""Nobody comes back: a suspension that expires, a controller that is killed, a second Ctrl-C. The keeper on the host, and `cancel`.

All on this machine, with a small server and a file of the test's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Outcome, runbook, start
from tests.steps.serving import SMALL_SERVER
from tests.support.processes import is_gone
from tests.support.schemas import validator
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
MODEL = "def forward(batch):\n    return batch\n"


class Nobody:
    """A run that patches a file, launches a server that loads for minutes, and waits for it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.model = folder / "model.py"
        self.model.write_text(MODEL)
        self.port = port
        self.before = self.fingerprint()

    def book(self, box: str, stubborn: bool = False, **top: Any) -> Path:
        """The playbook: the wait has this time box. A stubborn server does not end on TERM."""
        patch = {"for": "server", "file": str(self.model), "replace": [{"find": "return batch", "with": "return [batch]"}]}
        command: Any = [sys.executable, str(SMALL_SERVER), "--port", str(self.port), "--load", "120"]
        if stubborn:
            command = f"trap '' TERM; exec {shlex.join(command)}"
        steps = [
            {"id": "taps", "patch": patch | top.pop("patch", {})},
            {"id": "server", "launch": {"command": command, "profile": "sglang", "port": self.port, "settle": "100ms"}},
            {"id": "up", "wait_healthy": {"server": "server", "timeout": box}},
        ]
        always = [{"kill": {"step": "server", "ladder": ["TERM 3s", "KILL 5s"]}}, {"restore": "taps"}]
        path = self.folder / "book.yaml"
        path.write_text(json.dumps({"runbook": 1, "name": "Nobody", "hosts": {"gpu": "local"}, "steps": steps, "always": always, **top}))
        return path

    def runbook(self, *args: str | Path) -> Outcome:
        """A command that sees this run."""
        return runbook(*args, state=self.state, cwd=self.folder)

    def waiting(self, book: Path) -> tuple[subprocess.Popen[str], str]:
        """Start the run; answers once it waits for the server. And its id."""
        child = start("run", book, "--json", state=self.state, cwd=self.folder)
        journal = until(lambda: next(self.state.glob("runbook/runs/*/events.jsonl"), None), 20)
        assert isinstance(journal, Path)
        until(lambda: '"event":"sample","step":"up"' in journal.read_text() or '"event":"moved"' in journal.read_text(), 20)
        assert self.fingerprint() != self.before
        return child, journal.parent.name

    def fingerprint(self) -> tuple[str, int, int]:
        """Hash, mode and time of the file."""
        stat = self.model.stat()
        return hashlib.sha256(self.model.read_bytes()).hexdigest(), stat.st_mode, stat.st_mtime_ns

    def server(self, run: str) -> int:
        """Its main process, as the journal has it."""
        found = re.search(
            r'"action":"launch","ok":true,"detail":\{"pid":(\d+)', (self.state / "runbook/runs" / run / "events.jsonl").read_text()
        )
        assert found
        return int(found[1])

    def host_files(self) -> list[Path]:
        """What is left in the host's state folder."""
        return [path for path in (self.state / "runbook-host").rglob("*") if path.is_file()]

    def processes(self, run: str) -> list[int]:
        """Whoever carries the run's marker."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                marked = f"RUNBOOK_RUN={run}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue  # it has ended
            found += [int(pid)] if marked and not is_gone(int(pid)) else []
        return found

    def keeper_undid_all(self, server: int) -> None:
        """Server gone and file as before, with nobody's help."""
        until(lambda: is_gone(server), 15)
        until(lambda: self.fingerprint() == self.before, 15)

    def cancelled(self, run: str) -> dict[str, Any]:
        """`cancel` of it is clean, says so, and leaves nothing."""
        outcome = self.runbook("cancel", run, "--json")
        assert outcome.code == 0, outcome.err
        answer = outcome.json
        assert (answer["state"], answer["verdict"], answer["cleanup"]["status"]) == ("ended", "interrupted", "passed")
        assert answer["left_behind"] == [] and "cleaned up" in answer["reason"]
        assert self.fingerprint() == self.before
        assert self.host_files() == [] and self.processes(run) == []
        return answer


@pytest.fixture
def nobody(tmp_path: Path, port: int) -> Nobody:
    """A run to be left alone."""
    return Nobody(tmp_path, port)


def test_a_suspended_run_that_expires_is_cleaned_up_by_its_keeper_alone(nobody):
    outcome = nobody.runbook("run", nobody.book("1500ms", suspend_for="3s"), "--json")
    assert outcome.code == 4, outcome.err
    run, server = outcome.json["run"], nobody.server(outcome.json["run"])
    assert outcome.json["state"] == "suspended"
    assert not is_gone(server) and nobody.fingerprint() != nobody.before
    nobody.keeper_undid_all(server)
    assert time.time() >= outcome.json["expires"]
    shown = nobody.runbook("show", run)
    assert f"runbook cancel {run}" in shown.out and "its time was over" in shown.out
    answer = nobody.runbook("show", run, "--json").json
    assert (answer["state"], answer["verdict"], answer["stale"]) == ("suspended", "slow", "expired")
    assert " expired " in nobody.runbook("runs").out
    nobody.cancelled(run)
    journal = nobody.state / "runbook/runs" / run / "events.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    for event in events:
        validator("events").validate(event)
    assert {"sample", "phase", "moved", "owed", "settled", "registered", "run_suspended", "interrupted", "run_ended"} <= {
        event["event"] for event in events
    }
    assert [(row["state"], row["stale"]) for row in json.loads(nobody.runbook("runs", "--json").out)] == [("ended", None)]
    assert "INTERRUPTED" in nobody.runbook("show", run).out


def test_a_cancel_comes_in_time_before_the_expiry(nobody):
    outcome = nobody.runbook("run", nobody.book("1s", suspend_for="10m"), "--json")
    assert outcome.code == 4, outcome.err
    server = nobody.server(outcome.json["run"])
    nobody.cancelled(outcome.json["run"])
    assert is_gone(server)
    again = nobody.runbook("cancel", outcome.json["run"], "--json")
    assert "has ended already" in again.err and again.json["state"] == "ended"


def test_a_run_whose_controller_was_killed_is_undone_by_its_keeper_alone(nobody):
    child, run = nobody.waiting(nobody.book("10m", patch={"undo_after": "2s"}))
    server = nobody.server(run)
    child.kill()
    child.wait(10)
    nobody.keeper_undid_all(server)
    assert (nobody.runbook("show", run, "--json").json["state"], nobody.runbook("show", run, "--json").json["stale"]) == ("running", "lost")
    assert " lost " in nobody.runbook("runs").out and f"runbook cancel {run}" in nobody.runbook("show", run).out
    nobody.cancelled(run)


def test_the_cancel_of_a_run_whose_controller_was_killed_stops_the_server_and_restores_the_file(nobody):
    child, run = nobody.waiting(nobody.book("10m"))
    server = nobody.server(run)
    child.kill()
    child.wait(10)
    assert not is_gone(server) and nobody.fingerprint() != nobody.before
    nobody.cancelled(run)
    assert is_gone(server)


def test_the_second_ctrl_c_leaves_at_once_and_names_what_is_left(nobody):
    child, run = nobody.waiting(nobody.book("10m", stubborn=True))
    server = nobody.server(run)
    child.send_signal(signal.SIGINT)
    journal = nobody.state / "runbook/runs" / run / "events.jsonl"
    until(lambda: '"action":"kill"' in journal.read_text(), 10)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=10)
    assert time.monotonic() - began < 2 and child.returncode == 130
    assert "Traceback" not in err
    for left in (f"runbook cancel {run}", "local: launch of `server`", "local: patch of `taps`"):
        assert left in err
    answer = json.loads(out)
    assert (answer["state"], answer["exit_code"]) == ("running", 130)
    assert len(answer["left_behind"]) == 2 and any("cancel" in line for line in answer["next"])
    assert not is_gone(server) and nobody.fingerprint() != nobody.before
    nobody.cancelled(run)
    assert is_gone(server)
