"""The shipped playbook on hosts that are not the lab: behind a real OpenSSH sshd, and there in another account by `via: sudo`.

Such a host shows every process of this machine. So in these tests the first step, which ends leftover servers, is held to the folder
of the test; all else is the playbook as it is, with a vars file and a target as a user would give them.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from runbook.lab import home as lab_home
from tests.e2e.cli import STORY, Outcome, runbook
from tests.support.fixtures import other_user
from tests.support.sshd import Sshd
from tests.support.waiting import until

__all__ = ["other_user"]
pytestmark = pytest.mark.e2e
DRAFT = "lab_engine/models/llama_eagle3.py"
LEFTOVERS = "kill: {match: {profile: sglang}, "
PACKAGES = str(Path(find_spec("torch").origin).parents[1])  # type: ignore[union-attr,arg-type]
CAN_SERVE = f"""
import sys
from importlib.util import find_spec
sys.exit(sys.version_info[:2] != {sys.version_info[:2]} or not all(map(find_spec, ["torch", "setproctitle", "starlette", "uvicorn"])))
"""


class Account:
    """Who runs the server on the host: the interpreter that he may use, and what it needs to find torch."""

    def __init__(self, name: str, python: str, path: str) -> None:
        self.name = name
        self.python = python
        self.path = path

    @property
    def sudo(self) -> list[str]:
        """The prefix that becomes this account."""
        return ["sudo", "-n", "-u", self.name]

    def can_serve(self) -> bool:
        """Whether the server could run in this account."""
        command = [*self.sudo, "env", f"PYTHONPATH={self.path}", self.python, "-c", CAN_SERVE]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture
def account(other_user: str) -> Account:
    """Another account where it can run the server; else our own, through sudo all the same."""
    own = pwd.getpwuid(os.geteuid()).pw_name
    candidates = [Account(other_user, sys.executable, ""), Account(other_user, "/usr/bin/python3", PACKAGES)]
    return next((found for found in candidates if found.can_serve()), Account(own, sys.executable, ""))


class GpuBox:
    """A folder as on a GPU box: the engine's source, weights, `python` and the driver's tool; and how to tell runbook of it."""

    def __init__(self, folder: Path, python: str = sys.executable, path: str = "") -> None:
        self.home = folder / "srv"
        lab_home.build(self.home)
        self._script("python", [python])
        self._script("nvidia-smi", [python, "-S", str(self.home / "bin" / "smi.py")])
        self.path = os.pathsep.join([str(self.home / "bin"), lab_home.SYSTEM_PATH])
        self.state = folder / "state"
        self.packages = path
        self.draft = self.home / DRAFT

    def _script(self, name: str, argv: list[str]) -> None:
        path = self.home / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)

    def variables(self, port: int) -> dict[str, object]:
        """A vars file for this box."""
        path = os.pathsep.join(filter(None, [str(self.home), self.packages]))
        return {"port": port, "env": {"PATH": self.path, "PYTHONPATH": path}}

    def story(self, work: Path) -> Path:
        """The shipped playbook, its first step held to servers that were started in this box's folder."""
        text = STORY.read_text()
        assert text.count(LEFTOVERS) == 1
        found = work / "story.yaml"
        found.write_text(text.replace(LEFTOVERS, f"kill: {{match: {{profile: sglang, cwd: {self.home}}}, "))
        return found

    def fingerprint(self) -> tuple[str, int, int, int]:
        """Hash, mode, owner and time of the file that is patched."""
        stat = self.draft.stat()
        return hashlib.sha256(self.draft.read_bytes()).hexdigest(), stat.st_mode, stat.st_uid, stat.st_mtime_ns

    def processes(self) -> list[str]:
        """Titles of processes that were started for this box: its folder stands in their environment."""
        mark = str(self.home).encode()
        found = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if mark in _read(f"/proc/{pid}/environ")]
        return [_read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode() for pid in found]

    def files(self) -> list[Path]:
        """What runs left in the state folder."""
        return [path for path in self.state.rglob("*") if path.is_file()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""  # it has ended


def run_story(box: GpuBox, sshd: Sshd, work: Path, port: int, via: list[str]) -> Outcome:
    """As a user: hosts.yaml names the box, a vars file tells of it, `-H` points the playbook at it."""
    via = [*via, "env", f"PATH={box.path}", f"XDG_STATE_HOME={box.state}", f"RUNBOOK_LEASES={work}"]
    (work / "hosts.yaml").write_text(yaml.safe_dump({"hosts": {"gpu-box": {"host": "box", "via": via, "python": "/usr/bin/python3"}}}))
    (work / "box.yaml").write_text(yaml.safe_dump(box.variables(port)))
    env = {"RUNBOOK_SSH_CONFIG": str(sshd.client_config)}
    args = ("run", box.story(work), "-H", "gpu=gpu-box", "-e", "@box.yaml", "--json")
    return runbook(*args, state=work / "runs", cwd=work, env=env)


def passed_and_left_nothing(outcome: Outcome, box: GpuBox, before: tuple[str, int, int, int]) -> None:
    """Verdict, the whole claim, the file as before, no process, no file."""
    assert outcome.code == 0, outcome.err
    assert (outcome.json["verdict"], outcome.json["left_behind"]) == ("passed", [])
    assert {step["host"] for step in outcome.json["steps"]} == {"gpu-box", ""}
    assert box.fingerprint() == before
    until(lambda: box.processes() == [], 5)
    assert box.files() == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts may enter: those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="runbook-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_shipped_playbook_passes_over_a_real_sshd(sshd, tmp_path, port):
    box = GpuBox(tmp_path)
    before = box.fingerprint()
    outcome = run_story(box, sshd, tmp_path, port, [])
    passed_and_left_nothing(outcome, box, before)
    assert "Accepted publickey" in sshd.log()


def test_the_shipped_playbook_passes_in_another_account_by_sudo_behind_a_real_sshd(sshd, tmp_path, port, account, open_folder):
    box = GpuBox(open_folder, account.python, account.path)
    box.state.mkdir()
    subprocess.run(["chown", "-R", f"{account.name}:", str(open_folder)], check=True)
    before = box.fingerprint()
    outcome = run_story(box, sshd, tmp_path, port, account.sudo)
    passed_and_left_nothing(outcome, box, before)
    (connected,) = [event for event in outcome.events if hasattr(event, "facts")]
    assert connected.facts["user"] == account.name
