"""The evidence bundle: each item of real processes, bounded, failing alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host, RemoteError, Taken
from runbook.hosts.local import connect_local
from runbook.onhost import collect, collect_process
from runbook.onhost.scene import Late, Nothing, Unseen
from runbook.onhost.together import together
from tests.support.processes import python, start_of, state_of
from tests.support.waiting import until

SERVER = """
import socket, threading, sys, mmap
peer = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(peer.getsockname())
def idle_here(): threading.Event().wait(60)
print("ready", flush=True)
idle_here()
"""


def take(host: Host, *what: str, **spec: Any) -> tuple[dict[str, str], dict[str, str], Taken]:
    taken = host.collect(spec, what)
    status = {item.item: item.status for item in taken.items}
    return status, {file.name: file.data.decode("utf-8", "replace") for file in taken.files}, taken


@pytest.mark.slow
def test_a_living_server_is_told_of_in_files(local_host: Host, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("earlier run\n" + "loading shard 3/4\n")
    env = {**os.environ, "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abcdefgh", "CUDA_PROXY": "http://me:pw@x/", "EDITOR": "vi"}
    with python(SERVER, env=env) as child:
        target = start_of(child.pid)
        spec = {"pid": target.pid, "start": target.start, "log": str(log), "log_offset": 12, "interpreter": sys.executable}
        until(lambda: "idle_here" in take(local_host, "stacks", **spec)[1].get("stacks.txt", ""))
        status, files, taken = take(local_host, **spec)
    assert set(status) == set(collect.ITEMS) and {status[name] for name in ("stacks", "processes", "log", "sockets", "packages")} == {
        "taken"
    }
    assert f"== pid {child.pid}, by py-spy" in files["stacks.txt"] and "idle_here (<string>:5)" in files["stacks.txt"]
    assert files["log.txt"] == "loading shard 3/4\n"
    assert "NCCL_DEBUG=INFO" in files["environment.txt"] and "Max open files" in files["environment.txt"]
    assert (
        "hf_abcdefgh" not in files["environment.txt"]
        and "me:pw" not in files["environment.txt"]
        and "EDITOR" not in files["environment.txt"]
    )
    assert "msgspec==" in files["packages.txt"] and "editable file://" in files["packages.txt"]
    assert files["processes.txt"].startswith('exit: "it lives"') and f"threads of pid {child.pid}" in files["processes.txt"]
    assert "127.0.0.1" in files["sockets.txt"] and "MemAvailable" in files["disk.txt"] and "/dev/shm" in files["shared_memory.txt"]
    assert (
        status["flight_recorder"] == "absent"
        and status["ras"] == "absent"
        and all(item.reason for item in taken.items if item.status != "taken")
    )


@pytest.mark.slow
def test_a_dead_server_leaves_its_log_and_the_host_and_costs_little(local_host: Host, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"first\n" + b"x" * 3_000_000 + b"\nlast words\n")
    with python("print('ready', flush=True); import time; time.sleep(60)") as child:
        target = start_of(child.pid)
    began = time.monotonic()
    status, files, _ = take(local_host, pid=target.pid, start=target.start, log=str(log))
    assert time.monotonic() - began < 3
    assert status["stacks"] == status["sockets"] == status["environment"] == status["ras"] == "absent"
    assert files["log.txt"].startswith("first\n") and files["log.txt"].endswith("last words\n") and "bytes left out" in files["log.txt"]
    assert len(files["log.txt"]) < 700_000 and "no process of it is left" in files["processes.txt"]


@pytest.mark.slow
def test_only_what_is_asked_for_is_taken_and_a_wrong_word_is_told(local_host: Host) -> None:
    assert list(take(local_host, "disk", "kernel")[0]) == ["disk", "kernel"]
    with pytest.raises(RemoteError, match="no item `stack`"):
        local_host.collect({}, ["stack"])


@pytest.mark.slow
def test_a_stopped_server_is_still_told_of(local_host: Host) -> None:
    with python(SERVER) as child:
        target = start_of(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: state_of(child.pid) == "T")
        status, files, _ = take(local_host, "stacks", "processes", "environment", pid=target.pid, start=target.start)
        assert state_of(child.pid) == "T"
    assert set(status.values()) == {"taken"} and f"{child.pid}" in files["processes.txt"]


def test_one_item_that_hangs_or_fails_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(problem: Exception) -> Any:
        def take(scene: Any, limit_s: float) -> Any:
            raise problem

        return take

    def hang(scene: Any, limit_s: float) -> Any:
        time.sleep(5)

    items = {
        "good": collect.Item(lambda scene, limit_s: [("good.txt", b"good")], 1.0, 100),
        "long": collect.Item(lambda scene, limit_s: [("a.txt", b"a" * 80), ("b.txt", b"b" * 80), ("c.txt", b"c")], 1.0, 100),
        "bug": collect.Item(raising(KeyError("x")), 1.0, 100),
        "hangs": collect.Item(hang, 1.0, 100),
        "none": collect.Item(raising(Nothing("no such thing")), 1.0, 100),
        "dark": collect.Item(raising(Unseen("not permitted", [("part.txt", b"part")])), 1.0, 100),
        "slow": collect.Item(raising(Late("no answer in 1 s")), 1.0, 100),
    }
    monkeypatch.setattr(collect, "ITEMS", items)
    began = time.monotonic()
    answer, _ = collect.collect(None, {"limit_s": 0.5}, b"")
    assert time.monotonic() - began < 2
    status = {row["item"]: row["status"] for row in answer["items"]}
    assert status == {"good": "taken", "long": "taken", "bug": "failed", "hangs": "late", "none": "absent", "dark": "blind", "slow": "late"}
    assert [(file["item"], file["name"]) for file in answer["files"]] == [
        ("good", "good.txt"),
        ("long", "a.txt"),
        ("long", "b.txt"),
        ("dark", "part.txt"),
    ]
    assert next(row["cut"] for row in answer["items"] if row["item"] == "long")


def test_more_tasks_than_threads_are_all_done() -> None:
    tasks = [lambda n=n: n * n for n in range(20)]
    assert together(tasks, time.monotonic() + 10, None, repr, at_once=3) == [n * n for n in range(20)]


def test_the_origin_of_a_package_shows_no_password() -> None:
    assert (
        collect_process.origin(b'{"url": "https://u:p@git.example/x.git", "vcs_info": {"commit_id": "abc"}}')
        == "https://git.example/x.git@abc"
    )
    assert "cannot be read" in collect_process.origin(b"[]") and "cannot be read" in collect_process.origin(b"\xff")


@pytest.mark.slow
def test_a_gpu_tool_that_never_returns_is_blind_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = connect_local()
    try:
        began = time.monotonic()
        taken = host.collect({}, ["gpu", "disk"], limit_s=2.0)
    finally:
        host.close()
    status = {item.item: item for item in taken.items}
    assert time.monotonic() - began < 4 and status["disk"].status == "taken" and status["disk"].seconds < 1
    assert status["gpu"].status == "blind" and "no answer in time" in status["gpu"].reason


@pytest.mark.slow
def test_three_hundred_children_are_told_of_in_bounded_time(local_host: Host) -> None:
    code = "import os, time\nfor _ in range(300):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\nprint('ready', flush=True); time.sleep(60)"
    with python(code) as child:
        target = start_of(child.pid)
        began = time.monotonic()
        status, files, _ = take(local_host, "stacks", "processes", pid=target.pid, start=target.start)
        assert time.monotonic() - began < 20
    assert status == {"stacks": "taken", "processes": "taken"} and "left out: more than 64 processes" in files["stacks.txt"]


def test_ranks_at_one_place_are_told_together_and_the_odd_one_apart() -> None:
    def main(rank: int | None, *frames: str) -> dict[str, Any]:
        return {
            "pid": 100 + (rank or 0),
            "tid": 1,
            "rank": rank,
            "source": "py-spy",
            "main": True,
            "frames": list(frames),
            "thread": "MainThread",
        }

    text = collect_process.stacks_text([main(0, "wait (a.py:1)"), main(1, "read (b.py:2)", "load (b.py:9)"), main(2, "wait (a.py:1)")])
    assert text.splitlines()[:3] == ["rank 0, 2: wait (a.py:1)", "rank 1: read (b.py:2) < load (b.py:9)", ""]
    assert collect_process.stacks_text([main(None, "wait (a.py:1)")]).startswith("== pid 100, by py-spy")
