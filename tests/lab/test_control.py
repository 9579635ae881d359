"""`runbook lab up`, `down`, `status`: as a user types them, each in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.lab import control, processes
from tests.lab.conftest import free_port

pytestmark = pytest.mark.e2e


def lab(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "from runbook.cli.lab import command; command(prog_name='runbook lab')", *argv]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def status() -> dict[str, object]:
    return json.loads(lab("status", "--json").stdout)


def test_down_leaves_nothing_and_says_what_it_ended(state: Path) -> None:
    assert lab("up").returncode == 0
    place = control.current()
    assert place is not None
    subprocess.run(control.ssh_argv(place, "setsid sleep 600 < /dev/null > /dev/null 2>&1 &"), check=True, timeout=30)
    (sleeper,) = [process for process in processes.below(place.daemon) if "sleep 600" in process.title]
    said = lab("down")
    assert said.returncode == 0 and f"(pid {sleeper.pid})" in said.stderr
    assert not processes.alive(sleeper) and not processes.alive(place.daemon)
    assert list((state / "runbook").iterdir()) == []
    assert status()["state"] == "down"


def test_down_of_no_lab_passes_and_status_exits_1(state: Path) -> None:
    assert lab("down").returncode == 0
    said = lab("status")
    assert said.returncode == 1 and "runbook lab up" in said.stdout


def test_two_ups_at_once_start_one_lab(state: Path) -> None:
    line = [sys.executable, "-c", "from runbook.lab.control import ensure_up; print(ensure_up().pid)"]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    pids = {client.communicate(timeout=60)[0].strip() for client in both}
    assert len(pids) == 1 and pids != {""}
    assert {str(control.up().pid)} == pids


def test_a_killed_daemon_is_replaced_and_its_processes_end(state: Path) -> None:
    place = control.up()
    subprocess.run(control.ssh_argv(place, "setsid sleep 600 < /dev/null > /dev/null 2>&1 &"), check=True, timeout=30)
    (sleeper,) = [process for process in processes.below(place.daemon) if "sleep 600" in process.title]
    os.kill(place.pid, signal.SIGKILL)
    processes.wait(lambda: not processes.alive(place.daemon), 10)
    assert control.current() is None
    again = control.ensure_up()
    assert again.pid != place.pid and not processes.alive(sleeper)


def test_the_lab_has_a_copy_of_the_engine(state: Path) -> None:
    """A patch on the lab must not reach the installed package."""
    place = control.up()
    file = Path(place.home) / "lab_engine" / "models" / "llama_eagle3.py"
    source = file.read_text()
    assert source.count("hidden_states = forward_batch.spec_info.hidden_states\n") == 1
    file.write_text("# patched\n")
    control.down()
    assert (Path(control.up().home) / "lab_engine" / "models" / "llama_eagle3.py").read_text() == source


def test_a_leftover_server_holds_port_and_gpu_and_is_recognised(state: Path) -> None:
    port = str(free_port())
    assert lab("up", "--leftover", "--port", port).returncode == 0
    place = control.current()
    assert place is not None
    query = "nvidia-smi --query-compute-apps=used_memory --format=csv,noheader,nounits"
    assert int(subprocess.run(control.ssh_argv(place, query), capture_output=True, timeout=30).stdout) > 8192
    assert lab("up", "--leftover", "--port", port).returncode == 0
    assert sum("launch_server" in process.title for process in processes.below(place.daemon)) == 1


def test_a_leftover_on_somebody_elses_port_is_refused(state: Path) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        said = lab("up", "--leftover", "--port", str(other.getsockname()[1]))
    assert said.returncode == 1 and "is taken by a process that is not the lab's" in said.stderr


def test_a_missing_extra_is_named_with_the_command_that_installs_it(state: Path) -> None:
    line = "import sys; sys.modules['torch'] = None; from runbook.cli.lab import command; command(['up'])"
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, timeout=60)
    assert said.returncode == 2
    assert "the lab needs torch" in said.stderr and "pip install '.[lab]'" in said.stderr
    assert not (state / "runbook").exists()


def test_a_state_folder_that_cannot_be_written_is_an_error_with_a_hint(state: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = lab("up", XDG_STATE_HOME=str(tmp_path / "file"))
    assert said.returncode == 1 and "Traceback" not in said.stderr and "XDG_STATE_HOME" in said.stderr
