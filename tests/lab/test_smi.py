"""The stand-in `nvidia-smi`, run as the script that the lab installs, and read by the on-host helper's own readers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.lab import home as lab_home
from runbook.lab import processes
from runbook.onhost import gpu_read

GIB = 1 << 30


class Smi:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.tool = str(home / "bin" / "nvidia-smi")

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.tool, *argv], capture_output=True, text=True, timeout=20)

    def hold(self, pid: int, start: int, gpu: int, size: int) -> None:
        (self.home / "gpus" / f"{pid}.json").write_text(json.dumps({"pid": pid, "start": start, "gpu": gpu, "bytes": size}))


@pytest.fixture
def smi(tmp_path: Path) -> Iterator[Smi]:
    lab_home.build(tmp_path / "home")
    yield Smi(tmp_path / "home")


def start_of(pid: int) -> int:
    process = processes.find(pid)
    assert process is not None
    return process.start


@pytest.mark.slow
def test_the_helper_reads_both_gpus_and_their_holders(smi: Smi) -> None:
    smi.hold(os.getpid(), start_of(os.getpid()), 1, 8 * GIB)
    said = smi.run(*gpu_read.gpu_question("")[1:])
    gpus = gpu_read.read_gpus(said.returncode, said.stdout, said.stderr)["gpus"]
    assert [(g["index"], g["used"], g["total"]) for g in gpus] == [(0, 0, 80 * GIB), (1, 8 * GIB, 80 * GIB)]
    said = smi.run(*gpu_read.app_question("")[1:])
    assert gpu_read.read_apps(said.returncode, said.stdout, said.stderr) == {
        "apps": [{"uuid": gpus[1]["uuid"], "pid": os.getpid(), "used": 8 * GIB}]
    }


@pytest.mark.slow
def test_memory_of_an_ended_process_is_free_again(smi: Smi) -> None:
    child = subprocess.Popen(["sleep", "60"])
    smi.hold(child.pid, start_of(child.pid), 0, GIB)
    assert smi.run("--query-gpu=memory.used", "--format=csv,noheader,nounits").stdout.split() == ["1024", "0"]
    child.kill()
    assert processes.wait(lambda: processes.find(child.pid) is None, 10)
    held_by_zombie = smi.run("--query-gpu=memory.used", "--format=csv,noheader,nounits").stdout.split()
    child.wait()
    assert held_by_zombie == ["0", "0"]


def test_a_reused_pid_holds_nothing(smi: Smi) -> None:
    smi.hold(os.getpid(), start_of(os.getpid()) - 1, 0, GIB)
    assert smi.run("--query-compute-apps=pid", "--format=csv,noheader").stdout == ""


def test_units_and_header_are_there_unless_declined(smi: Smi) -> None:
    said = smi.run("--query-gpu=index,memory.total", "--format=csv", "-i", "1").stdout
    assert said == "index, memory.total [MiB]\n1, 81920 MiB\n"


def test_an_unknown_field_is_refused_by_name(smi: Smi) -> None:
    said = smi.run("--query-gpu=index,memory.usde", "--format=csv")
    assert (said.returncode, said.stdout) == (2, 'Field "memory.usde" is not a valid field to query.\n')


@pytest.mark.slow
def test_the_table_names_holders_and_the_list_both_gpus(smi: Smi) -> None:
    smi.hold(os.getpid(), start_of(os.getpid()), 0, GIB)
    table = smi.run().stdout
    assert str(os.getpid()) in table and "1024MiB / 81920MiB" in table
    assert [line.split(":")[0] for line in smi.run("-L").stdout.splitlines()] == ["GPU 0", "GPU 1"]
