"""Servers and hosts that are odd in themselves: each gets a verdict or a clear error, in bounded time."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from runbook.model.verdict import EXIT_CODES
from tests.cli.test_diagnose import KEYS, SLEEPS, diagnose, start
from tests.support.waiting import until

__all__ = ["diagnose", "start"]
LOOK_S, GRACE_S = 6, 20
"""How long each may look, and what connecting, judging and writing the run may take besides on a busy machine."""
FOR = ("--for", f"{LOOK_S}s")


@pytest.fixture
def bounded():
    """The whole test keeps its time."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LOOK_S + GRACE_S


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--for", "0s"), "nothing can happen"),
        (("--stall-after", "0s"), "nothing can happen"),
        (("--for", "99999999999999h"), "longer than a hundred years"),
        (("--url", "not a url"), "no address of HTTP"),
        (("--url", "127.0.0.1:8000/health"), "no address of HTTP"),
        (("--url", "http://127.0.0.1:99999/"), "no address of HTTP"),
    ],
)
def test_a_time_or_address_that_means_nothing_is_told_before_anything_is_contacted(diagnose, argv, said):
    code, answer = diagnose(*argv, target="nowhere.invalid")
    assert code == 2 and said in answer["diagnostics"][0]["summary"]


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_one_line_of_a_gigabyte(diagnose, start, tmp_path):
    """A file without a line's end, as wide as a disk: it is neither kept in memory nor waited for."""
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        out.truncate(1 << 30)
    server = start(*SLEEPS)
    code, answer = diagnose("--pid", str(server.pid), *FOR)
    assert (code, answer["verdict"]) == (EXIT_CODES["undecided"], "undecided") and set(answer) >= KEYS
    assert (Path(answer["transcript"]).parent / "events.jsonl").stat().st_size < 1 << 20


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_a_log_that_is_cut_meanwhile_is_followed(diagnose, start, tmp_path):
    server = start("-c", "import time\nfor n in range(999): print(f'shard {n}/999', flush=True); time.sleep(.1)")
    log = tmp_path / "server.log"
    until(lambda: log.exists() and log.stat().st_size > 100, 10)
    os.truncate(log, 0)
    code, answer = diagnose("--pid", str(server.pid), *FOR)
    assert (code, answer["verdict"]) == (EXIT_CODES["slow"], "slow") and answer["progress"]["bar"].endswith("/999")


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("seconds", [3600, 30])
def test_a_gpu_tool_that_does_not_answer_in_time_holds_nothing_up_and_is_ended(seconds, diagnose, start, tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/asked\nexec sleep {seconds}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    server = start("-c", "import time\nfor n in range(999): print(f'shard {n}/999', flush=True); time.sleep(.1)")
    code, answer = diagnose("--pid", str(server.pid), *FOR)
    assert (code, answer["verdict"], answer["kind"]) == (EXIT_CODES["slow"], "slow", "on_track")
    asked = int((tmp_path / "asked").read_text())
    until(lambda: not Path(f"/proc/{asked}").exists(), 10)


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_a_process_that_forks_a_thousand_children(diagnose, start, tmp_path):
    crowd = "import os, signal\nfor _ in range(1000):\n    if os.fork() == 0: signal.pause()\nprint('all', flush=True)\nsignal.pause()"
    server = start("-c", crowd)
    until(lambda: (tmp_path / "server.log").read_text() == "all\n", 20)
    code, answer = diagnose("--pid", str(server.pid), *FOR)
    assert (code, answer["verdict"]) == (EXIT_CODES["undecided"], "undecided")
    assert server.poll() is None


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_a_server_of_another_profile_whose_url_leads_nowhere(diagnose, start):
    """An address that nobody answers is no verdict about the process."""
    server = start("-c", "import time\nfor n in range(999): print(f'shard {n}/999', flush=True); time.sleep(.1)")
    code, answer = diagnose("--pid", str(server.pid), "--url", "http://127.0.0.1:1/health", *FOR)
    assert (code, answer["verdict"]) == (EXIT_CODES["slow"], "slow")
