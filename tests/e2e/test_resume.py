"""Runs that are gone on with: after kill -9, after a suspension, over a real sshd; one controller at a time; and a disk that is full."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.engine.journal import load_events
from runbook.model.event import HostConnected, Moved, Resumed, RunEnded, StepStarted
from tests.chaos.controller_kills import table, trials
from tests.e2e.cli import ROOT, Outcome, runbook, start
from tests.support.pages import missing, shown_as
from tests.support.processes import is_gone
from tests.support.sshd import Sshd
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
SERVER = ROOT / "tests" / "data" / "servers" / "probed_server.py"
MODULE = "def answer(question):\n    reply = question * 2\n    return reply\n"


class Box:
    """A playbook for the host behind an sshd: patch, launch, wait, GET; and the commands that see its runs."""

    def __init__(self, folder: Path, sshd: Sshd, port: int) -> None:
        self.folder, self.state, self.port = folder, folder / "state", port
        self.env = {"RUNBOOK_SSH_CONFIG": str(sshd.client_config)}
        self.module = folder / "part.py"
        self.module.write_text(MODULE)

    def book(self, *, load_s: float = 0.3, box: str = "60s", more: list[dict[str, Any]] | None = None, **top: Any) -> Path:
        """The playbook; `more` are steps after the wait."""
        command = [sys.executable, str(SERVER), "--port", str(self.port), "--folder", str(self.folder), "--load", str(load_s)]
        steps = [
            {"id": "taps", "patch": {"for": "server", "file": str(self.module), "replace": [{"find": "* 2", "with": "* 3"}]}},
            {"id": "server", "launch": {"command": command, "port": self.port, "settle": "100ms"}},
            {"id": "up", "wait_healthy": {"server": "server", "timeout": box, "interval": "100ms"}},
            {"id": "ask", "request": {"server": "server", "get": "/health"}},
            *(more or []),
        ]
        always = [{"kill": {"step": "server"}}, {"restore": "taps"}]
        path = self.folder / "book.yaml"
        path.write_text(json.dumps({"runbook": 1, "hosts": {"gpu": "box"}, "collect": "off", "steps": steps, "always": always, **top}))
        return path

    def runbook(self, *args: str | Path, **more: Any) -> Outcome:
        """A command; its object is that of a run."""
        found = runbook(*args, state=self.state, cwd=self.folder, env=self.env, **more)
        return Outcome(found.code, found.out, found.err, "run")

    def begun(self, *args: str | Path, at: str) -> tuple[subprocess.Popen[str], str]:
        """Start a run; answers once its journal has this text."""
        child = start("run", *args, "--json", state=self.state, cwd=self.folder, env=self.env)
        until(lambda: any(at in path.read_text() for path in self.state.glob("runbook/runs/*/events.jsonl")), 60)
        [folder] = self.state.glob("runbook/runs/*/")
        return child, folder.name

    def journal(self, run: str) -> list[Any]:
        """Its events."""
        return load_events(self.state / "runbook" / "runs" / run)

    @property
    def starts(self) -> int:
        """How often the server was started."""
        path = self.folder / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def nothing_stays(self, sshd: Sshd) -> None:
        """The file has its bytes, and the host's state folder is empty."""
        assert self.module.read_text() == MODULE
        assert [path for path in sshd.home.rglob("*") if path.is_file() and "runbook" in str(path)] == []


@pytest.fixture
def box(tmp_path: Path, sshd: Sshd, port: int) -> Iterator[Box]:
    """A box; what a failed test leaves there is cancelled."""
    made = Box(tmp_path, sshd, port)
    yield made
    for folder in made.state.glob("runbook/runs/*/"):
        made.runbook("cancel", folder.name)


def test_a_detached_run_whose_worker_was_killed_is_resumed_to_its_end(box, sshd):
    begun = box.runbook("run", box.book(load_s=3), "--detach", "--json")
    run = begun.json["run"]
    until(lambda: any(isinstance(event, Moved) and event.step == "up" for event in box.journal(run)), 60)
    worker = box.journal(run)[0].controller["pid"]
    os.kill(worker, signal.SIGKILL)
    until(lambda: is_gone(worker))
    shown = box.runbook("show", run, "--json")
    assert (shown.json["state"], shown.json["stale"]) == ("running", "lost")
    assert f"runbook resume {run}" in box.runbook("show", run).out
    done = box.runbook("resume", run, "--json")
    assert (done.code, done.json["verdict"], box.starts) == (0, "passed", 1), done.err
    assert "its controller died here" in done.step_rows("up")[0]["reason"]
    box.nothing_stays(sshd)
    again = box.runbook("resume", run, "--json")
    assert (again.code, again.json["state"]) == (0, "ended") and "has ended already" in again.err


def test_a_suspended_slow_run_is_resumed_to_passed(box, sshd):
    slow = box.runbook("run", box.book(load_s=6, box="2s"), "--json")
    assert (slow.code in (4, 9), slow.json["state"]) == (True, "suspended"), slow.err
    run = slow.json["run"]
    assert f"runbook resume {run}" in slow.json["next"]
    done = box.runbook("resume", run, "--json")
    while done.json["state"] == "suspended":  # each has the two seconds of the step
        done = box.runbook("resume", run, "--json")
    assert (done.code, done.json["verdict"], box.starts) == (0, "passed", 1), done.err
    box.nothing_stays(sshd)


def test_a_second_controller_is_refused_and_told_who_has_the_run(box, sshd):
    child, run = box.begun(box.book(load_s=60), at='"step":"up"')
    child.kill()
    child.communicate()
    first = start("resume", run, "--json", state=box.state, cwd=box.folder, env=box.env)
    until(lambda: any(isinstance(event, Resumed) for event in box.journal(run)), 60)
    second = box.runbook("resume", run)
    assert second.code == 8 and f"pid {first.pid}" in second.err, second.err
    first.terminate()
    out, err = first.communicate(timeout=60)
    assert (first.returncode, json.loads(out)["cleanup"]["status"]) == (143, "passed"), err
    box.nothing_stays(sshd)
    assert sum(isinstance(event, Resumed) for event in box.journal(run)) == 1


def test_a_script_in_flight_waits_for_a_word_of_its_author(box, sshd):
    mark = box.folder / "ran"
    script = f"echo x >> {shlex.quote(str(mark))}; sleep 1; test -e {shlex.quote(str(box.folder / 'go'))} || sleep 60"
    child, run = box.begun(box.book(more=[{"id": "act", "run": script}]), at='"step":"act"')
    until(lambda: mark.exists(), 60)
    [helper] = [event.facts["pid"] for event in box.journal(run) if isinstance(event, HostConnected)]
    child.kill()
    child.communicate()
    os.kill(helper, signal.SIGKILL)  # else it would stay with the script, and its end would be collected
    stopped = box.runbook("resume", run, "--json")
    assert (stopped.code, stopped.json["verdict"], stopped.json["state"]) == (9, "undecided", "suspended")
    assert [line.split("#")[0].strip() for line in stopped.json["next"][1:3]] == [
        f"runbook resume {run} --redo act",
        f"runbook resume {run} --skip act",
    ]
    assert missing(shown_as("docs/guides/going_on.md", "in_flight"), stopped.err) is None, stopped.err
    assert mark.read_text() == "x\n", "it was not run again"
    wrong = box.runbook("resume", run, "--redo", "up")
    assert wrong.code == 2 and "in flight: act" in wrong.err
    (box.folder / "go").touch()
    done = box.runbook("resume", run, "--redo", "act", "--json")
    assert (done.code, done.json["verdict"], mark.read_text()) == (0, "passed", "x\nx\n"), done.err
    box.nothing_stays(sshd)


def test_a_run_whose_keeper_has_cleaned_up_ends_as_what_it_was(box, sshd):
    slow = box.runbook("run", box.book(load_s=30, box="1s", suspend_for="2s"), "--json")
    run, verdict = slow.json["run"], slow.json["verdict"]
    until(lambda: box.module.read_text() == MODULE, 20)
    done = box.runbook("resume", run, "--json")
    assert (done.json["state"], done.json["verdict"], done.code) == ("ended", verdict, slow.code)
    assert "its keeper had cleaned up" in done.json["reason"] and "nothing was done again" in done.json["reason"]
    assert sum(isinstance(event, StepStarted) and event.step == "up" for event in box.journal(run)) == 1 and box.starts == 1


def test_what_a_run_keeps_is_taken_over_by_the_next_and_ended_by_cancel(box, sshd):
    kept = box.runbook("run", box.book(), "--keep", "--json")
    assert (kept.code, kept.json["cleanup"]["status"], len(kept.json["left_behind"])) == (0, "passed", 2), kept.err
    assert kept.json["expires"] > 0 and any("--reuse" in line for line in kept.json["next"])
    assert box.module.read_text() != MODULE
    again = box.runbook("run", box.book(), "--keep", "--reuse", kept.json["run"], "--json")
    assert (again.code, box.starts) == (0, 1), again.err
    assert "taken over" in again.step("server")["reason"] and "taken over" in again.step("taps")["reason"]
    old = box.runbook("cancel", kept.json["run"], "--json")
    assert old.json["left_behind"] == [] and box.module.read_text() != MODULE, "what was taken over is not its to end"
    heir = again.json["run"]
    assert f"`runbook cancel {heir}`" in old.err and any(f"runbook cancel {heir}" in line for line in old.json["next"])
    refused = box.runbook("run", box.book(), "--json")
    assert refused.code == 8 and f"`runbook cancel {heir}`" in refused.json["reason"] and kept.json["run"] not in refused.json["reason"]
    for command in (("restore", kept.json["run"]), ("run", box.book(), "--reuse", kept.json["run"])):
        pointed = box.runbook(*command)
        assert pointed.code == 2 and heir in pointed.err, pointed.err
    listed = box.runbook("restore", heir, "--list")
    assert str(box.module) in listed.out and ": patched" in listed.out, listed.out
    other = box.runbook("run", box.book(load_s=0.4), "--reuse", again.json["run"], "--json")
    assert (other.code, box.starts) == (0, 2), other.err
    assert [row["code"] for row in other.json["findings"]] == ["not_reused"] and "command" in other.json["findings"][0]["text"]
    box.nothing_stays(sshd)
    third = box.runbook("run", box.book(), "--keep", "--json")
    ended = box.runbook("cancel", third.json["run"], "--json")
    assert (ended.code, ended.json["verdict"], ended.json["left_behind"]) == (0, "passed", [])
    box.nothing_stays(sshd)


def test_a_full_disk_of_the_controller_costs_no_cleanup(box, sshd):
    limit = 64 * 1024
    more = [{"id": "loud", "run": "head -c 200000 /dev/zero | tr '\\0' x"}, {"id": "after", "run": "true"}]
    done = subprocess.run(
        [sys.executable, "-m", "runbook.cli.main", "run", str(box.book(more=more)), "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(box.state), **box.env},
        cwd=box.folder,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert (outcome.code, outcome.json["verdict"], outcome.json["cleanup"]["status"]) == (70, "error", "passed"), done.stderr
    assert "File too large" in outcome.json["reason"] and "all was cleaned up" in outcome.json["reason"]
    assert "Traceback" not in done.stderr
    assert isinstance(box.journal(outcome.json["run"])[-1], RunEnded), "there was room for the end"
    box.nothing_stays(sshd)


def test_secrets_are_asked_for_again_and_the_folder_of_the_start_counts(tmp_path):
    """Neither a declared one nor that of an `-e` is in the journal."""
    state, log = tmp_path / "state", tmp_path / "log"
    log.write_text("begun\n")
    check = 'test "$A" = tiger-tiger-one && test "$B" = tiger-tiger-two && echo fine'
    steps = [
        {"id": "hold", "grep": {"file": str(log), "pattern": "go on", "wait": "60s"}},
        {"id": "same", "run": {"shell": check, "env": {"A": "${{ secrets.FIRST }}", "B": "${{ vars.token }}"}}},
        {"copy": {"from": "local.txt", "to": str(tmp_path / "copied.txt")}},
    ]
    (tmp_path / "local.txt").write_text("here\n")
    book = {"runbook": 1, "hosts": {"box": "local"}, "secrets": ["FIRST"], "vars": {"token": ""}, "steps": steps}
    (tmp_path / "book.yaml").write_text(json.dumps(book))
    first = {"FIRST": "tiger-tiger-one"}
    child = start("run", "book.yaml", "-e", "token=tiger-tiger-two", "--out", tmp_path / "run", state=state, cwd=tmp_path, env=first)
    journal = tmp_path / "run" / "events.jsonl"
    until(lambda: journal.exists() and '"step":"hold"' in journal.read_text(), 60)
    assert b"-e\0token=" + b"*" * 15 in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    child.kill()
    child.communicate()
    assert "tiger" not in journal.read_text()
    for env, lacking in (({}, "token"), (first, "token"), ({"token": "tiger-tiger-two"}, "FIRST")):
        refused = runbook("resume", tmp_path / "run", state=state, env=env)
        assert refused.code == 2 and lacking in refused.err, refused.err
    with log.open("a") as file:
        file.write("go on\n")
    done = runbook("resume", tmp_path / "run", state=state, env={**first, "token": "tiger-tiger-two"})
    assert done.code == 0 and "fine" in done.err, done.err
    assert (tmp_path / "copied.txt").read_text() == "here\n"
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"tiger" in path.read_bytes()]


def test_a_cancel_leaves_out_the_steps_that_the_run_left_out(tmp_path):
    state, run = tmp_path / "state", tmp_path / "run"
    always = [{"id": name, "tags": [name], "run": f"touch {tmp_path / name}"} for name in ("loud", "quiet")]
    book = {"runbook": 1, "hosts": {"box": "local"}, "steps": [{"id": "hold", "run": "sleep 60"}], "always": always}
    (tmp_path / "book.yaml").write_text(json.dumps(book))
    child = start("run", "book.yaml", "--skip-tags", "loud", "--out", run, state=state, cwd=tmp_path)
    until(lambda: (run / "events.jsonl").exists() and '"step":"hold"' in (run / "events.jsonl").read_text(), 60)
    child.kill()
    child.communicate()
    ended = runbook("cancel", run, "--json", state=state)
    assert ended.json["verdict"] == "interrupted" and ended.code == 0, ended.err
    assert (tmp_path / "quiet").exists() and not (tmp_path / "loud").exists()


@pytest.mark.slow
def test_wherever_the_controller_is_killed_the_run_ends_as_it_would_have():
    """A sample of tests/chaos/controller_kills.py."""
    results = trials(range(1, 8), at_once=4)
    assert not any(result.faults for result in results), table(results)
    assert sum(result.kills for result in results) >= 5
