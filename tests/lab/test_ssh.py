"""The lab's SSH server, through a real OpenSSH client."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.lab import control, processes
from tests.support.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[control.Lab]:
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield control.up()
    control.down()
    os.environ.pop("XDG_STATE_HOME") if before is None else os.environ.update(XDG_STATE_HOME=before)


def ssh(lab: control.Lab, line: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(control.ssh_argv(lab, line), input=data, capture_output=True, timeout=30)


def test_streams_are_apart_binary_and_the_status_comes_back(lab: control.Lab) -> None:
    data = os.urandom(3_000_000)
    said = ssh(lab, "cat; echo oops >&2; exit 7", data)
    assert (said.stdout, said.stderr, said.returncode) == (data, b"oops\n", 7)


def test_a_command_gets_the_environment_of_a_login_and_nothing_of_ours(lab: control.Lab) -> None:
    env = dict(line.split("=", 1) for line in ssh(lab, "env").stdout.decode().splitlines())
    assert (env["HOME"], env["PWD"], env["XDG_STATE_HOME"]) == (lab.home, lab.home, f"{lab.home}/.state")
    assert env["RUNBOOK_SCOPE"] == lab.daemon.scope
    assert env["PATH"].split(":")[0] == f"{lab.home}/bin"
    assert not {"PYTHONPATH", "PYTEST_CURRENT_TEST", "VIRTUAL_ENV"} & set(env)


def test_nvidia_smi_and_the_engine_are_found(lab: control.Lab) -> None:
    said = ssh(lab, "command -v nvidia-smi; python -c 'import lab_engine; print(lab_engine.__file__)'").stdout.decode().split()
    assert said == [f"{lab.home}/bin/nvidia-smi", f"{lab.home}/lab_engine/__init__.py"]


def test_input_and_output_are_prompt(lab: control.Lab) -> None:
    """A question and its answer cross the channel without waiting for a buffer to fill."""
    with subprocess.Popen(control.ssh_argv(lab, "exec cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as client:
        assert client.stdin and client.stdout
        times = []
        for word in (b"one\n", b"two\n", b"three\n"):
            begin = time.monotonic()
            client.stdin.write(word)
            assert client.stdout.read(len(word)) == word
            times.append(time.monotonic() - begin)
        client.stdin.close()
        assert client.wait(10) == 0
    assert min(times) < 0.2


def test_a_closed_channel_ends_its_process_group_but_not_another_session(lab: control.Lab, tmp_path: Path) -> None:
    line = f"setsid sleep 600 < /dev/null > /dev/null 2>&1 & echo $! > {tmp_path}/far; (trap '' HUP; sleep 600) & echo $! > {tmp_path}/near; cat"
    client = subprocess.Popen(control.ssh_argv(lab, line), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    near = read_process(tmp_path / "near")
    far = read_process(tmp_path / "far")
    client.kill()
    client.wait(10)
    until(lambda: not processes.alive(near), 10)
    assert processes.alive(far)
    assert far in processes.below(lab.daemon), "an orphan stays in the daemon's tree"
    processes.end([far])


def test_orphans_leave_no_zombies(lab: control.Lab, tmp_path: Path) -> None:
    ssh(lab, f"(sleep 0.2 & echo $! > {tmp_path}/pid) > /dev/null 2>&1")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not os.path.exists(f"/proc/{pid}"), 10)


def test_many_commands_at_once_all_answer(lab: control.Lab) -> None:
    clients = [subprocess.Popen(control.ssh_argv(lab, f"echo {i}; exit {i}"), stdout=subprocess.PIPE) for i in range(12)]
    assert [(client.communicate(timeout=30)[0], client.returncode) for client in clients] == [(f"{i}\n".encode(), i) for i in range(12)]


def test_nobody_gets_in_without_the_key(lab: control.Lab, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    said = ssh(lab._replace(key=str(tmp_path / "other")), "id")
    assert said.returncode == 255 and b"Permission denied" in said.stderr
    assert {oct(Path(file).stat().st_mode & 0o777) for file in (lab.key, lab.known_hosts)} == {"0o600"}


def read_process(file: Path) -> processes.Process:
    text = until(lambda: file.exists() and file.read_text().strip(), 10)
    process = processes.find(int(str(text)))
    assert process is not None
    return process
