"""`show --follow`: in another terminal, while it goes on; and it leaves the run alone."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runbook.cli.main import exit_code
from tests.cli.recorded import events, record
from tests.cli.running import ROOT

HERE = {"host": socket.gethostname(), "pid": os.getpid(), "start": int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])}


def begin(folder: Path, *argv: str, **env: str) -> subprocess.Popen[str]:
    """A follower of its own process."""
    return subprocess.Popen(
        [sys.executable, "-m", "runbook.cli.main", "show", str(folder), "--follow", *argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CI": "", "GITHUB_ACTIONS": "", "GITLAB_CI": "", **env},
    )


def append(folder: Path, text: bytes) -> None:
    with (folder / "events.jsonl").open("ab") as journal:
        journal.write(text)


def encoded(event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


@pytest.fixture
def going(tmp_path):
    """(folder, the events that are still to come) of a run that this process runs."""
    made = events(controller=HERE, verdict="hung")
    return record(tmp_path / "run", made[:3]), made[3:]


@pytest.mark.slow
def test_it_shows_what_comes_and_ends_with_the_run(going):
    folder, rest = going
    with begin(folder) as follower:
        assert follower.stdout and [follower.stdout.readline() for _ in range(3)][2] == "> up [box]\n"
        first, torn = encoded(rest[0]), encoded(rest[-1])
        append(folder, first + torn[:20])
        assert follower.stdout.readline().startswith("FAILED hung up [box]")
        append(folder, torn[20:])
        out, err = follower.communicate(timeout=30)
    assert follower.returncode == 0 and "HUNG (exit 3)" in out and err == ""


@pytest.mark.slow
def test_ctrl_c_ends_the_following_and_not_the_run(going):
    folder, _ = going
    before = (folder / "events.jsonl").read_bytes()
    with begin(folder) as follower:
        assert follower.stdout and follower.stdout.readline().startswith("run ")
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=30)
    assert follower.returncode == 130 and "Traceback" not in err and (folder / "events.jsonl").read_bytes() == before


def test_a_run_whose_controller_has_died_is_not_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("runbook.cli.follow.LOOK_EVERY_S", 0.0)
    folder = record(tmp_path / "run", events(controller={**HERE, "start": 1})[:3])
    assert exit_code(["show", str(folder), "--follow"]) == 0
    assert "lost: its controller has died" in capsys.readouterr().out


def test_a_run_that_is_over_is_shown_as_it_is(tmp_path, capsys):
    folder = record(tmp_path / "run", events(verdict="slow"))
    append(folder, b'{"event":"quantum_leap"}\n')
    assert exit_code(["show", str(folder), "--follow"]) == 0
    out, err = capsys.readouterr()
    assert "SUSPENDED slow/on_track (exit 4)" in out and "1 lines of the journal were left out" in err
    assert exit_code(["show", str(folder), "--follow", "--json"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "begins"), [({"GITHUB_ACTIONS": "true"}, r"^::group::> up"), ({"GITLAB_CI": "true"}, r"^\x1b\[0Ksection_start:\d+:step_1_up")]
)
def test_in_a_ci_job_steps_are_folded(tmp_path, env, begins):
    folder = record(tmp_path / "run", events())
    with begin(folder, **env) as follower:
        out, _ = follower.communicate(timeout=30)
    assert re.search(begins, out, re.MULTILINE)


@pytest.mark.parametrize("text", ["no journal\n", "{}\n"])
def test_a_file_that_is_no_journal_is_said_and_not_waited_for(tmp_path, capsys, text):
    (tmp_path / "events.jsonl").write_text(text)
    assert exit_code(["show", str(tmp_path), "--follow"]) == 2
    assert "no line of it is an event of a run" in capsys.readouterr().err
