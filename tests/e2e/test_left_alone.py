"""Runs that outlive who started them: `--wait-for`, `--detach`, `wait`, `cancel` from another process, a terminal that closes.

On a real sshd, with a small server that the run launches there.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import ROOT, Outcome, runbook, start
from tests.steps.serving import SMALL_SERVER
from tests.support.processes import is_gone
from tests.support.schemas import validator
from tests.support.sshd import Sshd
from tests.support.terminal import Terminal
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
SECRET = "tiger-in-the-engine-room"
LOST = 9
STILL_RUNNING = 75


class Box:
    """A working folder with a playbook for the host behind the sshd, and the commands that see its runs."""

    def __init__(self, folder: Path, sshd: Sshd, port: int) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.sshd = sshd
        self.port = port
        self.env = {"RUNBOOK_SSH_CONFIG": str(sshd.client_config), "HF_TOKEN": SECRET}

    def book(self, load_s: float, **top: Any) -> Path:
        """Launch a server that loads for so long, wait for it, and leave a mark in `always`."""
        server = [sys.executable, str(SMALL_SERVER), "--port", str(self.port), "--load", str(load_s)]
        steps = [
            {"id": "server", "launch": {"command": server, "profile": "sglang", "port": self.port, "settle": "100ms"}},
            {"id": "up", "wait_healthy": {"server": "server", "timeout": "60s"}},
        ]
        always = [{"kill": {"step": "server"}}, {"id": "mark", "run": f"touch {shlex.quote(str(self.mark))}"}]
        book = {"runbook": 1, "name": "Left alone", "hosts": {"gpu": "box"}, "secrets": ["HF_TOKEN"], "steps": steps, "always": always}
        path = self.folder / "book.yaml"
        path.write_text(json.dumps({**book, **top}))
        return path

    @property
    def mark(self) -> Path:
        """The file that `always` makes."""
        return self.folder / "cleaned"

    def runbook(self, *args: str | Path) -> Outcome:
        """A command to its end; its object fits the schema of a run."""
        outcome = runbook(*args, state=self.state, cwd=self.folder, env=self.env, seconds=90)
        outcome.schema = "run"
        return outcome

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """A command that goes on."""
        return start(*args, state=self.state, cwd=self.folder, env=self.env)

    def journal(self) -> Path:
        """The journal of the one run."""
        found = until(lambda: next(self.state.glob("runbook/runs/*/events.jsonl"), None), 30)
        assert isinstance(found, Path)
        return found

    def events(self) -> list[dict[str, Any]]:
        """Its events so far."""
        return [json.loads(line) for line in self.journal().read_text().splitlines(keepends=True) if line.endswith("\n")]

    def is_waiting(self) -> bool:
        """Whether the run waits for its server by now."""
        begun = any(self.state.glob("runbook/runs/*/events.jsonl"))
        return begun and any(event["event"] == "wait_began" for event in self.events())

    def waiting(self) -> str:
        """The run's id, once it waits for its server."""
        until(self.is_waiting, 60)
        return self.journal().parent.name

    def controller(self) -> int:
        """The process that does the run."""
        return int(self.events()[0]["controller"]["pid"])

    def server(self) -> int:
        """The launched server's process."""
        ends = [event for event in self.events() if event["event"] == "action_ended" and event["action"] == "launch"]
        return int(ends[-1]["detail"]["pid"])

    def is_cleaned_up(self) -> bool:
        """Server gone, `always` done, nothing left in the host's state folder."""
        left = [path for path in self.sshd.home.rglob("*") if path.is_file() and "runbook-host" in path.parts]
        return is_gone(self.server()) and self.mark.exists() and left == []


@pytest.fixture
def box(tmp_path: Path, sshd: Sshd, port: int) -> Iterator[Box]:
    """A host, and a run's controller that does not outlive a failed test."""
    found = Box(tmp_path, sshd, port)
    yield found
    for journal in found.state.glob("runbook/runs/*/events.jsonl"):
        if '"event":"run_ended"' not in journal.read_text():
            found.runbook("cancel", journal.parent)


def test_wait_for_ends_before_the_run_and_wait_gives_its_answer(box):
    first = box.runbook("run", box.book(6), "--wait-for", "5s", "--json")
    assert first.code == STILL_RUNNING, first.err
    run = first.json["run"]
    assert first.json == {**first.json, "verdict": None, "state": "running", "next": [f"runbook wait {run} --for 45s"]}
    assert set(first.json) == {"verdict", "state", "run", "step", "phase", "moved", "next"}
    assert "> up [box]" in first.err or "> server [box]" in first.err, "the same lines as of a run in the foreground"
    last = box.runbook("wait", run, "--json")
    assert (last.code, last.json["verdict"], last.json["state"]) == (0, "passed", "ended")
    assert last.json["transcript"]["html"] and Path(last.json["transcript"]["html"]).exists()
    assert "> server" not in last.err and "PASSED (exit 0)" in last.err, "what has been before is not shown again"
    assert box.runbook("wait", run, "--json").json == last.json
    until(box.is_cleaned_up, 10)
    assert SECRET not in "".join(path.read_text("utf-8", "replace") for path in box.journal().parent.rglob("*") if path.is_file())


def test_a_killed_caller_takes_nothing_along(box):
    """As an agent's shell does when its time is over: kill -9 of the whole process group."""
    caller = box.start("run", box.book(3), "--wait-for", "10m", "--json")
    run = box.waiting()
    os.killpg(caller.pid, signal.SIGKILL)
    caller.communicate(timeout=10)
    assert box.controller() != caller.pid and not is_gone(box.controller())
    assert box.runbook("wait", run, "--for", "60s").code == 0
    until(box.is_cleaned_up, 10)


def test_a_detached_run_is_cancelled_from_another_process(box):
    began = box.runbook("run", box.book(300), "--detach")
    assert began.code == 0, began.err
    run = began.out.strip()
    assert box.waiting() == run and f"runbook wait {run} --for 45s" in began.err
    command = Path(f"/proc/{box.controller()}/cmdline").read_bytes()
    environment = Path(f"/proc/{box.controller()}/stat").read_text().rpartition(")")[2].split()
    assert SECRET.encode() not in command and int(environment[3]) == box.controller(), "it leads a session of its own"
    assert os.readlink(f"/proc/{box.controller()}/fd/0") == "/dev/null"
    ended = box.runbook("cancel", run, "--json")
    assert (ended.code, ended.json["verdict"], ended.json["exit_code"]) == (0, "interrupted", 130), ended.err
    assert ended.json["reason"] == "cancel; cleaned up" and ended.json["cleanup"] == {"status": "passed"}
    until(box.is_cleaned_up, 10)
    assert not (box.journal().parent / "cancel.request").exists()
    again = box.runbook("wait", run, "--json")
    assert again.code == 130 and again.json == ended.json


def test_ctrl_c_of_who_waits_leaves_the_run_alone(box):
    run = json.loads(box.runbook("run", box.book(300), "--detach", "--json").out)["run"]
    box.waiting()
    waiter = box.start("wait", run, "--json")
    assert waiter.stderr and waiter.stderr.readline().startswith(f"run {run}")
    waiter.send_signal(signal.SIGINT)
    out, err = waiter.communicate(timeout=20)
    assert waiter.returncode == 130 and "left alone" in err and "Traceback" not in err
    validator("run").validate(json.loads(out))
    assert json.loads(out)["state"] == "running" and not is_gone(box.controller())
    os.kill(box.controller(), signal.SIGHUP)  # a worker has no terminal to lose
    os.kill(box.controller(), signal.SIGTERM)
    ended = box.runbook("wait", run, "--json")
    assert (ended.code, ended.json["reason"]) == (143, "SIGTERM; cleaned up")


def test_a_worker_that_is_killed_is_told_as_lost_at_once_and_another_goes_on(box):
    began = box.runbook("run", box.book(12), "--detach")
    assert began.code == 0, began.err
    run = began.out.strip()
    box.waiting()
    server = box.server()
    os.kill(box.controller(), signal.SIGKILL)
    until(lambda: is_gone(box.controller()), 10)
    lost = box.runbook("wait", run, "--json")
    assert (lost.code, lost.json["state"], lost.json["verdict"]) == (LOST, "lost", None)
    assert lost.json["next"] == [f"runbook resume {run}", f"runbook cancel {run}"]
    resumed = box.runbook("resume", run, "--wait-for", "60s", "--json")
    assert (resumed.code, resumed.json["verdict"]) == (0, "passed"), resumed.err
    launches = [event for event in box.events() if event["event"] == "action_ended" and event["action"] == "launch"]
    assert [event["detail"]["pid"] for event in launches] == [server], "it was launched once"
    until(box.is_cleaned_up, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="another host name needs a namespace, and that root")
def test_a_run_of_another_machine_that_shares_the_folder_is_cancelled_from_here(box):
    """Another host name stands for the other machine. Its controller is in the foreground there: what is asked reaches it all the same."""
    argv = [sys.executable, "-m", "runbook.cli.main", "run", str(box.book(300)), "--json"]
    script = f"hostname elsewhere && exec {shlex.join(argv)}"
    env = {**os.environ, **box.env, "XDG_STATE_HOME": str(box.state)}
    there = subprocess.Popen(
        ["unshare", "--uts", "sh", "-c", script], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run = box.waiting()
    ended = box.runbook("cancel", run, "--json")
    assert "on elsewhere to stop" in ended.err and (ended.code, ended.json["verdict"]) == (0, "interrupted"), ended.err
    out, _ = there.communicate(timeout=20)
    assert there.returncode == 130 and json.loads(out) == ended.json, "both tell the same"
    until(box.is_cleaned_up, 10)


def test_a_terminal_that_closes_is_cleaned_up_after(box):
    """A real one: closing its master side hangs it up, as an SSH connection or a window that goes."""
    there = Terminal(box.folder, "run", str(box.book(300)), env={**box.env, "XDG_STATE_HOME": str(box.state)})
    until(lambda: there.read() and there.process.poll() is None and box.is_waiting(), 30)
    there.hang_up()
    assert there.process.wait(30) == 129
    end = box.events()[-1]
    assert (end["verdict"], end["exit_code"]) == ("interrupted", 129) and "its terminal was closed" in end["reason"]
    assert (box.journal().parent / "transcript.html").exists()
    until(box.is_cleaned_up, 10)
