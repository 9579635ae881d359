"""The driver's tool is asked under a limit and never twice at once. The tool here is a script in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import GpuReport, Host
from runbook.hosts.local import connect_local
from tests.support.processes import is_gone
from tests.support.waiting import until

ROWS = "0, GPU-a, Lab GPU, 1000, 2000, 5\n1, GPU-b, Lab GPU, 3, 2000, [N/A]\n"


@pytest.fixture
def host_with(tmp_path: Path) -> Iterator[Callable[[str], Host]]:
    """Connect to a host whose nvidia-smi is this shell script."""
    hosts: list[Host] = []

    def connect(script: str, path: str = "") -> Host:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        hosts.append(connect_local(env={"PATH": path or f"{tmp_path}:{os.environ['PATH']}"}))
        return hosts[-1]

    yield connect
    for host in hosts:
        host.close()


def answering(apps: str = "") -> str:
    return f'case "$1" in *query-gpu*) printf %s "{ROWS}";; *) printf %s "{apps}";; esac'


def test_memory_load_and_holders_come_together(host_with: Callable[[str], Host]) -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        report = host_with(answering(f"GPU-b, {process.pid}, 3\nGPU-b, 999999999, [N/A]\n")).gpus()
        process.kill()
    first, second = report.gpus
    assert (first.used, first.total, first.utilisation, first.holders) == (1000 << 20, 2000 << 20, 5, ())
    assert second.utilisation is None and [(one.pid, one.title, one.used) for one in second.holders] == [
        (process.pid, "sleep", 3 << 20),
        (999999999, "", None),
    ]


def test_only_the_wanted_gpus_are_listed_and_an_unknown_one_is_blind(host_with: Callable[[str], Host]) -> None:
    host = host_with(answering())
    assert [gpu.index for gpu in host.gpus([1]).gpus] == [1]
    assert host.gpus([1, 7]).blind == "nvidia-smi lists no GPU [7]; it lists [0, 1]"


def test_no_tool_is_missing_not_an_empty_list(host_with: Callable[..., Host], tmp_path: Path) -> None:
    report = host_with("true", path=os.path.dirname(sys.executable)).gpus()
    assert report.missing and report.gpus == () and "no nvidia-smi" in report.blind


def test_a_failing_tool_is_blind_with_its_words(host_with: Callable[[str], Host]) -> None:
    report = host_with("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18").gpus()
    assert report == GpuReport(blind=report.blind, seconds=report.seconds)
    assert report.blind == "nvidia-smi: exited 18: Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.slow
def test_a_tool_that_does_not_answer_is_blind_in_time_and_ended(host_with: Callable[[str], Host], tmp_path: Path) -> None:
    report = host_with(f"echo $$ > {tmp_path}/pid; exec sleep 60").gpus(limit_s=0.4)
    assert report.blind == "nvidia-smi: no answer in time; it was ended" and report.seconds < 3
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_the_tool_does_not_outlive_a_helper_that_leaves(host_with: Callable[[str], Host], tmp_path: Path) -> None:
    host = host_with(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    host.transport.begin("gpus", {"limit_s": 30.0})  # type: ignore[attr-defined]
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 5)
    host.close()
    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_a_copy_that_lives_on_keeps_others_from_being_started(host_with: Callable[[str], Host], tmp_path: Path) -> None:
    """As one that is stuck in the driver does: it outlives the helper that started it, and its descriptors with it."""
    pids = tmp_path / "pids"
    first = host_with(f"echo $$ >> {pids}; exec sleep 60")
    first.transport.begin("gpus", {"limit_s": 30.0})  # type: ignore[attr-defined]
    until(lambda: pids.exists() and pids.read_text().strip(), 5)
    stuck = int(pids.read_text())
    os.kill(first.facts.pid, signal.SIGKILL)
    second = connect_local(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    report = second.gpus(limit_s=0.3)
    assert f"another copy of nvidia-smi (pid {stuck}, state S) has not answered" in report.blind
    assert pids.read_text().split() == [str(stuck)]
    os.kill(stuck, signal.SIGKILL)
    until(lambda: is_gone(stuck), 5)
    second.gpus(limit_s=0.3)
    assert len(pids.read_text().split()) == 2
    second.close()


@pytest.mark.slow
def test_two_that_ask_at_once_are_served_one_after_the_other(host_with: Callable[[str], Host], tmp_path: Path) -> None:
    host = host_with(f"mkdir {tmp_path}/busy || exit 77; sleep 0.05; rmdir {tmp_path}/busy; {answering()}")
    reports: list[GpuReport] = []
    threads = [threading.Thread(target=lambda: reports.append(host.gpus(limit_s=20))) for _ in range(4)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.blind for report in reports] == [""] * 4 and time.monotonic() - began > 0.4


def test_a_driver_that_does_not_know_a_field_is_asked_without_it(host_with: Callable[[str], Host]) -> None:
    script = f"""case "$1" in
*power.draw*) echo 'Field "power.draw" is not a valid field to query.'; exit 2;;
*query-gpu*) printf %s "{ROWS}";; esac"""
    assert [gpu.used for gpu in host_with(script).gpus().gpus] == [1000 << 20, 3 << 20]


def test_a_driver_with_the_later_name_of_the_throttle_reasons_is_asked_for_it(host_with: Callable[[str], Host], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = f"""echo "$1" >> {asked}
case "$1" in
*throttle*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2;;
*event_reasons*) echo '0, GPU-a, X, 1, 2, 0, 70.00, 700.00, 0x0000000000000004';; esac"""
    host = host_with(script)
    (gpu,) = host.gpus().gpus
    assert (gpu.power_w, gpu.throttle) == (70.0, ("power cap",))
    asked.unlink()
    assert host.gpus().gpus[0].throttle == ("power cap",)
    assert [word for word in asked.read_text().split() if "throttle" in word] == []  # that it was refused is remembered
