"""Nobody's work is ended by accident: leases keep runs apart, rules and marks of hosts.yaml hold, whatever a playbook says."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.e2e.cli import ROOT, runbook, start
from tests.support.fixtures import other_user
from tests.support.processes import is_gone, python
from tests.support.sshd import Sshd
from tests.support.waiting import until

__all__ = ["other_user"]
pytestmark = pytest.mark.e2e
SYSTEM_PYTHON = "/usr/bin/python3"
SERVER = {"id": "server", "launch": {"command": ["sleep", "300"]}}
HOLD = {"id": "hold", "run": {"shell": "until test -e {gate}; do sleep 0.05; done", "timeout": "2m"}}


def book(folder: Path, name: str, target: object, *steps: object) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"runbook": 1, "hosts": {"box": target}, "steps": list(steps)}))
    return path


def reached(folder: Path, step: str) -> bool:
    journal = folder / "events.jsonl"
    return journal.exists() and f'"step":"{step}"' in journal.read_text()


@pytest.fixture
def box(tmp_path: Path, sshd: Sshd):
    """A real sshd, and how to run playbooks there."""

    class Box:
        folder, state = tmp_path, tmp_path / "state"
        env = {"RUNBOOK_SSH_CONFIG": str(sshd.client_config)}
        via = f"env XDG_STATE_HOME={tmp_path / 'host'}"
        on_host = tmp_path / "host" / "runbook-host"
        gate = tmp_path / "gate"

        def target(self, gpus=None, **more):
            return {"target": "box", "via": self.via, "python": sys.executable, **({"gpus": gpus} if gpus else {}), **more}

        def hold(self):
            return json.loads(json.dumps(HOLD).replace("{gate}", str(self.gate)))

        def start(self, name, *gpus):
            folder = self.folder / f"run-{name}"
            child = start(
                "run",
                book(self.folder, name, self.target(list(gpus)), SERVER, self.hold()),
                "--json",
                "--out",
                folder,
                state=self.state,
                env=self.env,
            )
            until(lambda: reached(folder, "hold"), 30)
            return child

        def run(self, name, gpus, *args, steps=(SERVER,)):
            return runbook("run", book(self.folder, name, self.target(gpus), *steps), "--json", *args, state=self.state, env=self.env)

    return Box()


def test_runs_on_different_gpus_go_side_by_side_and_on_the_same_they_exclude_each_other(box):
    first = box.start("first", 0, 1)
    beside = box.run("beside", [2])
    assert beside.code == 0, beside.err
    for gpus in ([1, 2], None):
        refused = box.run("same", gpus)
        assert (refused.code, refused.json["verdict"]) == (8, "refused")
        assert "GPUs 0, 1" in refused.json["reason"] and "since" in refused.json["reason"] and "until" in refused.json["reason"]
    waiting = start(
        "run", book(box.folder, "queued", box.target([1]), SERVER), "--json", "--wait-lease", "60s", state=box.state, env=box.env
    )
    box.gate.touch()
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert not box.on_host.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs a second account")
def test_a_run_of_another_account_is_in_the_way_and_told(box, other_user):
    common = Path(tempfile.mkdtemp(prefix="runbook-test-"))
    try:
        common.chmod(0o1777)
        seen = f"env RUNBOOK_LEASES={common}"
        theirs = {"target": "local", "python": SYSTEM_PYTHON, "via": f"sudo -n -u {other_user} {seen} XDG_STATE_HOME={common}/state"}
        ours = {"target": "local", "python": SYSTEM_PYTHON, "via": f"{seen} XDG_STATE_HOME={box.folder}/host", "gpus": [0]}
        gate = {"id": "hold", "run": {"shell": f"until test -e {common}/gate; do sleep 0.05; done", "timeout": "2m"}}
        first = start("run", book(box.folder, "first", theirs, SERVER, gate), "--json", "--out", box.folder / "first", state=box.state)
        until(lambda: reached(box.folder / "first", "hold"), 60)
        refused = runbook("run", book(box.folder, "second", ours, SERVER), "--json", state=box.state)
        assert (refused.code, refused.json["verdict"]) == (8, "refused") and f"account {other_user}" in refused.json["reason"]
        told = runbook("doctor", "local", "--json", state=box.state, env={"RUNBOOK_LEASES": str(common)})
        assert any(row["code"] == "leased" and f"account {other_user}" in row["text"] for row in json.loads(told.out)["findings"])
        (common / "gate").touch()
        _, err = first.communicate(timeout=60)
        assert first.returncode == 0, err
        assert runbook("run", book(box.folder, "third", ours, SERVER), "--json", state=box.state).code == 0
        assert not list(common.glob(".runbook-*"))
    finally:
        shutil.rmtree(common)


def test_the_lease_of_a_run_whose_controller_and_keeper_were_killed_is_taken_over_and_told(box):
    first = box.start("first", 0)
    first.kill()
    first.communicate()
    [keeper] = box.on_host.glob("runs/*/keeper.json")
    pid = json.loads(keeper.read_text())["pid"]
    still = box.run("still", [0])
    assert still.code == 8, "its keeper holds it"
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid))
    box.gate.touch()  # a command that still runs there is of the run, too
    after = box.run("after", [0], "--wait-lease", "30s")
    assert after.code == 0, after.err
    [found] = [row for row in after.json["findings"] if row["code"] == "lease_taken_over"]
    assert "its connection and its keeper are gone" in found["text"]
    [launch] = box.on_host.glob("runs/*/launches/server.json")
    os.kill(json.loads(launch.read_text())["pid"], signal.SIGKILL)


def test_steps_that_only_look_need_no_lease(box):
    first = box.start("first", 0)
    looked = box.run("look", None, steps=({"run": "true"}, {"wait_gpu_free": {}, "when": "false"}))
    assert looked.code == 0, looked.err
    checked = box.run("check", None, "--check")
    assert checked.code == 0, checked.err
    box.gate.touch()
    assert first.wait(60) == 0


def confirm_book(folder: Path, **entry: object) -> Path:
    (folder / "hosts.yaml").write_text(yaml.safe_dump({"hosts": {"prod": {"host": "local", **entry}}}))
    return book(folder, "p", "prod", {"kill": {"match": {"cmdline": "needle-s4fe"}}})


@pytest.mark.parametrize("mark", ["production", "shared"])
def test_on_a_marked_host_nothing_runs_without_yes_where_nobody_can_be_asked(tmp_path, mark):
    path = confirm_book(tmp_path, **{mark: True})
    with python("import signal; print('ready', flush=True); signal.pause()", "needle-s4fe") as child:
        refused = runbook("run", path, "--json", state=tmp_path / "s", cwd=tmp_path)
        assert (refused.code, refused.json["verdict"], refused.json["diagnostics"][0]["code"]) == (8, "refused", "not-confirmed")
        assert not is_gone(child.pid) and not (tmp_path / "s" / "runbook" / "runs").exists()
        plan = runbook("plan", path, state=tmp_path / "s", cwd=tmp_path)
        assert f"prod is marked `{mark}`" in plan.out and "needs --yes" in plan.out
        assert runbook("run", path, "--json", "--yes", state=tmp_path / "s", cwd=tmp_path).code == 0
        assert is_gone(child.pid)


@pytest.mark.parametrize("answer, code", [("y", 0), ("n", 8), ("", 8)])
def test_on_a_terminal_it_asks(tmp_path, answer, code):
    path = confirm_book(tmp_path, production=True)
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "runbook.cli.main", "run", str(path)],
        cwd=tmp_path, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "s"), "PYTHONPATH": str(ROOT)},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"go on?" not in said:
        said += os.read(ours, 4096)
    os.write(ours, f"{answer}\n".encode())
    assert b"ends processes that this run did not start" in said
    assert child.wait(60) == code
    os.close(ours)


def test_what_hosts_yaml_protects_outlives_a_playbook_that_names_it(tmp_path):
    file = tmp_path / "part.py"
    file.write_text("a = 1\n")
    rules = [{"cmdline": "needle-s4fe", "why": "the dashboard"}, {"file": str(file)}]
    path = confirm_book(tmp_path, protect=rules)
    with python("import signal; print('ready', flush=True); signal.pause()", "needle-s4fe") as child:
        spared = runbook("run", path, "--json", state=tmp_path / "s", cwd=tmp_path)
        assert spared.code == 0 and "1 protected and left alone" in spared.step("s01_kill")["reason"]
        named = runbook("run", book(tmp_path, "n", "prod", {"kill": {"pid": child.pid}}), "--json", state=tmp_path / "s", cwd=tmp_path)
        assert named.code == 8 and "protect: cmdline needle-s4fe (the dashboard)" in named.json["reason"]
        assert not is_gone(child.pid)
    patch = {"patch": {"file": str(file), "replace": [{"find": "a = 1", "with": "a = 2"}]}}
    patched = runbook("run", book(tmp_path, "f", "prod", patch), "--json", state=tmp_path / "s", cwd=tmp_path)
    assert patched.code == 8 and f"protect: file {file}" in patched.json["reason"] and file.read_text() == "a = 1\n"
