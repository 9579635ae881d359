"""Looks at a server: cheap and full ones, what goes on beside them, and what a suspicion brings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import Host
from runbook.hosts.local import connect_local
from runbook.model.sample import Absent, Blind, Seen
from runbook.steps.attach import Attach
from runbook.steps.watching import Watched
from tests.diagnose.stories import GENERIC
from tests.support.context import LocalContext
from tests.support.waiting import until

WAITS = "import threading, time\nlock = threading.Lock()\nlock.acquire()\nprint('waits', flush=True)\nlock.acquire()"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[int]:
    """A process that waits for a lock for ever."""
    with (tmp_path / "log").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=out, stderr=out, start_new_session=True)
    until(lambda: (tmp_path / "log").read_text() == "waits\n")
    yield process.pid
    process.kill()
    process.wait()


def watched(host: Host, folder: Path, pid: int) -> Watched:
    """That process, attached."""
    ctx = LocalContext(host, folder / "run", profiles={"generic": GENERIC}, box_s=120.0)
    assert ctx.at("server").do(Attach(pid=pid)).verdict == "passed"
    launched = ctx.launched("server")
    assert launched is not None
    return Watched(ctx, launched)


@pytest.mark.slow
def test_a_gpu_tool_that_does_not_answer_holds_up_no_look(tmp_path: Path, child: int) -> None:
    """Its state is seen meanwhile: a tool that is stuck in the driver says more than its silence."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexec -a nvidia-smi sleep 30\n".replace("#!/bin/sh", f"#!{_bash()}"))
    tool.chmod(0o755)
    env = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path / "state")}
    host = connect_local(env=env)
    try:
        server = watched(host, tmp_path, child)
        began = time.monotonic()
        looks = [server.look() for _ in range(3)]
        assert time.monotonic() - began < 15
        assert all(isinstance(look.processes, Seen) and look.gpus == Blind("not asked") for look in looks)
        server.close()
    finally:
        host.close()


def _bash() -> str:
    return subprocess.run(["sh", "-c", "command -v bash"], capture_output=True, text=True, check=True).stdout.strip()


def test_the_first_look_is_a_full_one_and_the_next_are_cheap(local_host: Host, tmp_path: Path, child: int) -> None:
    server = watched(local_host, tmp_path, child)
    first, second = server.look(), server.look()
    assert isinstance(first.sockets, Seen | Absent) and isinstance(first.disks, Seen)
    assert second.sockets == Blind("not asked") and isinstance(second.processes, Seen)
    assert second.processes.value[0].threads, "threads are in every look: without them nothing is known to be frozen"
    assert first.log.value.lines == ("waits",), "what it said before is told once"
    assert second.log.value.lines == ()


@pytest.mark.slow
def test_a_suspicion_brings_the_counters_first_and_then_stacks_twice(local_host: Host, tmp_path: Path, child: int) -> None:
    server = watched(local_host, tmp_path, child)
    looks = [server.look(), server.look()]
    server.inquiry.want(("stacks", "kernel"))

    def both() -> bool:
        looks.append(server.look())
        return not server.inquiry.under_way

    until(both, 60)
    kept = [look for look in looks if isinstance(look.stacks, Seen)]
    assert [look.stacks.value[0].look for look in kept] == [1, 2]
    assert kept[1].host_t - kept[0].host_t >= 10
    asked = next(look for look in looks if look.kernel != Blind("not asked"))
    assert asked.host_t <= kept[0].host_t and asked.disks != Blind("not asked"), "counters first"
    assert kept[0].stacks.value[0].pid == child
    server.inquiry.want(("stacks",))
    assert not server.inquiry.under_way, "it has just been looked into"
