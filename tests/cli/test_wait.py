"""wait, and the cancel of a run that another process does: on recorded journals, without a host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.cli import ask, store
from runbook.cli.main import exit_code
from runbook.engine import requests
from tests.cli.recorded import events, record, recorded
from tests.cli.running import ROOT, runbook
from tests.support.processes import is_gone
from tests.support.schemas import validator
from tests.support.waiting import until

START = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
HERE = {"host": socket.gethostname(), "pid": os.getpid(), "start": START, "boot_id": store.boot_id()}
DEAD = {**HERE, "start": 1}
RUN = "20300317-010000-aaaa"


def going(state: Path, controller: dict[str, object]) -> Path:
    """A run up to the start of its step `up`."""
    return record(state / "runbook" / "runs" / RUN, events(controller=controller)[:3])


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, object]]:
    """Exit code and object of a command."""
    code = exit_code([*argv, "--json"])
    answer = json.loads(capsys.readouterr().out)
    validator("run").validate(answer)
    return code, answer


@pytest.mark.parametrize(("verdict", "code", "state"), [("passed", 0, "ended"), ("hung", 3, "ended"), ("slow", 4, "suspended")])
def test_a_run_that_is_over_is_answered_at_once_with_its_own_code(verdict, code, state, own_state, capsys):
    recorded(own_state, RUN, verdict=verdict, controller=DEAD)
    answer = told(capsys, "wait", RUN)
    assert (answer[0], answer[1]["verdict"], answer[1]["state"]) == (code, verdict, state)


def test_a_run_that_goes_on_is_75_and_says_where_it_is(own_state, capsys):
    going(own_state, HERE)
    code, answer = told(capsys, "wait", RUN, "--for", "50ms")
    assert code == 75
    assert answer == {
        "verdict": None,
        "state": "running",
        "run": RUN,
        "step": "up",
        "phase": None,
        "moved": "",
        "next": [f"runbook wait {RUN} --for 45s"],
    }
    assert exit_code(["wait", RUN, "--for", "50ms"]) == 75
    out, err = capsys.readouterr()
    assert f"{RUN} goes on; step `up`" in out and f"next: runbook wait {RUN} --for 45s" in out
    assert "up: running for" in err, "a line of where it stands, not all that has been"


def test_a_run_whose_controller_has_died_is_lost_without_waiting(own_state, capsys):
    going(own_state, DEAD)
    code, answer = told(capsys, "wait", RUN)
    assert (code, answer["state"], answer["next"]) == (9, "lost", [f"runbook resume {RUN}", f"runbook cancel {RUN}"])


@pytest.mark.parametrize("argv", [["wait", RUN, "--for", "45"], ["run", "x.yaml", "--wait-for", "soon"]])
def test_a_time_without_a_unit_is_refused_with_what_to_write(argv, own_state, capsys):
    assert exit_code(argv) == 2
    assert "`45s`" in (err := capsys.readouterr().err) or "1h30m" in err


def test_a_dead_controller_is_told_from_one_that_has_its_pid_and_from_a_zombie():
    assert store.is_alive(HERE) and not store.is_alive(DEAD)
    assert not store.is_alive({**HERE, "boot_id": "another boot"})
    assert store.is_alive({**DEAD, "host": "elsewhere"}), "nothing is known of another machine"
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    until(lambda: is_gone(child.pid))
    assert not store.is_alive({**HERE, "pid": child.pid, "start": start}), "nobody has reaped it yet"
    child.wait()


@pytest.mark.parametrize(("host", "said"), [("elsewhere", "does that machine have this folder"), (HERE["host"], "kill -CONT")])
def test_a_controller_that_does_not_hear_is_named_and_the_request_withdrawn(host, said, own_state, capsys, monkeypatch):
    monkeypatch.setattr(ask, "TAKEN_WITHIN_S", 0.0)
    folder = going(own_state, {**HERE, "host": host})
    assert exit_code(["cancel", RUN]) == 8
    err = capsys.readouterr().err
    assert f"pid {os.getpid()} on {host}" in err and said in err
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "evidence"]


def test_a_cancel_that_does_not_wait_leaves_the_request_and_says_75(own_state, capsys):
    folder = going(own_state, HERE)
    code, answer = told(capsys, "cancel", RUN, "--for", "0s")
    assert (code, answer["state"], answer["next"]) == (75, "running", [f"runbook wait {RUN} --for 45s"])
    assert requests.take(folder), "its controller finds it when it looks next"


def test_the_events_of_a_run_by_cursor(own_state, capsys):
    recorded(own_state, RUN, verdict="hung")
    code, first = told(capsys, "show", RUN, "--cursor", "0")
    assert (code, first["state"], first["cursor"], first["more"]) == (0, "ended", 6, False)
    _, rest = told(capsys, "show", RUN, "--cursor", "4")
    assert rest["events"] == first["events"][4:]
    assert exit_code(["show", RUN, "--cursor", "4"]) == 2


def test_a_run_that_lies_elsewhere_is_found_by_its_id(own_state, tmp_path, capsys):
    folder = record(tmp_path / "elsewhere", events(RUN, verdict="hung", controller=DEAD))
    store.remember(store.Place(RUN, folder))
    assert told(capsys, "wait", RUN)[1]["transcript"]["dir"] == str(folder)
    assert exit_code(["runs"]) == 0 and RUN in capsys.readouterr().out


@pytest.mark.slow
def test_what_keeps_a_worker_from_beginning_is_told_by_its_caller(tmp_path):
    (tmp_path / "book.yaml").write_text("runbook: 1\nhosts: {box: local}\nsteps:\n  - run: 'true'\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "events.jsonl").symlink_to(tmp_path / "nowhere" / "events.jsonl")
    done = runbook("run", "book.yaml", "--detach", "--json", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2 and "cannot write" in done.stderr and "name another folder with --out" in done.stderr
    assert json.loads(done.stdout)["diagnostics"][0]["summary"].startswith("cannot write")
    assert not (tmp_path / "state").exists() and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_does_not_end_of_a_pipe_that_nobody_reads(tmp_path):
    """Its progress has no reader any more: the steps and the cleanup go on."""
    (tmp_path / "book.yaml").write_text("runbook: 1\nhosts: {box: local}\nsteps:\n  - run: sleep 0.2\nalways:\n  - run: touch cleaned\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "runbook.cli.main", "run", "book.yaml", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=write, timeout=60, check=False)
    os.close(write)
    assert (tmp_path / "cleaned").exists() and json.loads(done.stdout)["verdict"] == "passed"


@pytest.mark.parametrize(("holder", "code", "state"), [(None, 9, "lost"), (DEAD, 9, "lost"), (HERE, 75, "running")])
def test_a_run_that_never_began_is_lost_unless_somebody_works_on_it(tmp_path, capsys, holder, code, state):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.jsonl").touch()
    if holder is not None:
        (folder / "controller.lock").write_text(json.dumps(holder))
    os.utime(folder, (1e9, 1e9))
    assert exit_code(["wait", str(folder), "--for", "100ms", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["state"] == state
