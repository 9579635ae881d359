"""wait_gpu_free over a stand-in for the driver's tool that tells what a file says."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.local import connect_local
from runbook.lang.expressions import Unknown
from runbook.model.units import Duration, Size
from runbook.steps.wait_gpu_free import WaitGpuFree
from tests.support.context import LocalContext

TOOL = """#!/bin/sh
case "$1" in
  --query-gpu=*) awk -v total=81920 '{ print NR - 1 ", GPU-" NR - 1 ", Stand-in, " $1 ", " total ", 0" }' FOLDER/used ;;
  --query-compute-apps=*) cat FOLDER/apps ;;
esac
"""
QUICK = {"stable_for": Duration(0.4), "below": Size(2**30)}


class Gpus:
    """The stand-in: memory per GPU in MiB, and (gpu, pid, MiB) of holders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        tool = folder / "nvidia-smi"
        tool.write_text(TOOL.replace("FOLDER", str(folder)))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        self.set([0])

    def set(self, used: list[int], apps: list[tuple[int, int, int]] = ()) -> None:
        """Change what it tells."""
        for name, rows in (("used", [str(one) for one in used]), ("apps", [f"GPU-{gpu}, {pid}, {mib}" for gpu, pid, mib in apps])):
            fresh = self._folder / f"{name}.new"
            fresh.write_text("".join(row + "\n" for row in rows))
            fresh.rename(self._folder / name)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Gpus(folder)


@pytest.fixture
def ctx(gpus: Gpus, tmp_path: Path) -> Iterator[LocalContext]:
    host = connect_local()
    yield LocalContext(host, tmp_path)
    host.close()


@pytest.mark.slow
def test_memory_that_falls_is_waited_for(gpus: Gpus, ctx: LocalContext) -> None:
    gpus.set([70_000, 10])
    timer = threading.Timer(0.5, gpus.set, ([300, 10],))
    timer.start()
    result = ctx.do(WaitGpuFree(**QUICK))
    assert result.verdict == "passed"
    assert result.fields["freed_after"] >= 0.3
    assert [gpu["used"] for gpu in result.fields["gpus"]] == [300 * 2**20, 10 * 2**20]
    assert result.fields["curve"][0][1] > result.fields["curve"][-1][1]


@pytest.mark.slow
def test_a_named_holder_is_resource_held_with_pid_title_user_and_age(gpus: Gpus, ctx: LocalContext) -> None:
    holder = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        gpus.set([70_000], [(0, holder.pid, 69_000)])
        ctx.box_s = 0.8
        result = ctx.do(WaitGpuFree(**QUICK))
    finally:
        holder.communicate()
    assert (result.verdict, result.diagnosis.culprit.pid) == ("resource_held", holder.pid)
    assert re.search(rf"pid {holder.pid} `python\S*` of \S+ up \d", result.reason)


def test_memory_without_a_visible_holder_is_said_as_such(gpus: Gpus, ctx: LocalContext) -> None:
    gpus.set([70_000])
    ctx.box_s = 0.5
    result = ctx.do(WaitGpuFree(**QUICK))
    assert result.verdict == "resource_held" and "no visible holder" in result.reason
    assert "container" in result.diagnosis.next[0]


@pytest.mark.slow
def test_only_the_selected_gpus_count(gpus: Gpus, ctx: LocalContext) -> None:
    gpus.set([70_000, 10])
    assert ctx.do(WaitGpuFree(gpus=[1], **QUICK)).verdict == "passed"


def test_a_tool_that_fails_is_undecided(gpus: Gpus, ctx: LocalContext, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'Driver/library version mismatch' >&2; exit 18\n")
    ctx.box_s = 0.5
    result = ctx.do(WaitGpuFree(**QUICK))
    assert (result.verdict, "mismatch" in result.reason) == ("undecided", True)
    assert isinstance(result.fields["gpus"], Unknown)


def test_no_tool_is_undecided_at_once_unless_it_may_be_missing(local_host, tmp_path: Path) -> None:
    ctx = LocalContext(local_host, tmp_path, box_s=300)
    result = ctx.do(WaitGpuFree())
    assert (result.verdict, len(ctx.samples)) == ("undecided", 1)
    skipped = ctx.do(WaitGpuFree(when_missing="skip"))
    assert (skipped.verdict, ctx.findings[0][0]) == ("passed", "no_gpu_tool")


def test_an_empty_list_of_gpus_is_a_mistake() -> None:
    assert WaitGpuFree(gpus=[]).problems()[0][0] == "gpus"
