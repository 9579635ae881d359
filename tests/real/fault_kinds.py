"""The faults: what is done from outside, when, and which verdicts are right."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from runbook.lab import processes
from tests.real.engines import Engine

BOTH = ("sglang", "vllm")


class Stage:
    """What a fault may touch: the processes of one start on a lab."""

    def __init__(self, state: Path, engine: Engine, port: int) -> None:
        self.state, self.engine, self.port = state, engine, port
        self.hurt: list[processes.Process] = []

    def find(self, victim: str) -> processes.Process | None:
        """The engine's process of that name."""
        daemon = json.loads((self.state / "runbook" / "lab" / "lab.json").read_text())
        below = processes.below(processes.Process(daemon["pid"], daemon["start"]))
        return next((one for one in below if re.search(self.engine.workers[victim], one.title)), None)

    def send(self, victim: str, number: int) -> None:
        """Signal it."""
        process = self.find(victim)
        assert process is not None, f"no {victim}"
        self.hurt.append(process)
        processes.send(process, number)


@contextlib.contextmanager
def _plain(port: int) -> Iterator[list[str]]:
    """Nothing around the start."""
    yield []


class Fault(NamedTuple):
    """`act` strikes at its moment (`load`: as soon as `victim` is there, and `phase` was reached; or `serving`); `around` holds all the time.

    `right`: verdict/kind of those that are right. `around` may give words to put before the command.
    """

    name: str
    says: str
    right: tuple[str, ...]
    moment: str = "load"
    victim: str = ""
    act: Callable[[Stage], None] | None = None
    around: Callable[[int], AbstractContextManager[list[str]]] = _plain
    phase: str = ""
    engines: tuple[str, ...] = BOTH
    compiles: bool = False

    def undo(self, stage: Stage) -> None:
        """What was stopped goes on, so that it can be ended."""
        for process in stage.hurt:
            processes.send(process, signal.SIGCONT)


def _signal(victim: str, number: signal.Signals, moment: str, right: tuple[str, ...], engine: str) -> Fault:
    word = "stopped" if number == signal.SIGSTOP else "killed"
    when = "while it loads" if moment == "load" else "while it serves"
    return Fault(
        f"{victim}_{word}_{moment}",
        f"{victim.replace('_', ' ')} {number.name} {when}",
        right,
        moment,
        victim,
        lambda stage: stage.send(victim, number),
        engines=(engine,),
    )


@contextlib.contextmanager
def _memory_limit(port: int) -> Iterator[list[str]]:
    """A memory cgroup of 1 GB around the start: enough for one process, too little for all."""
    old = Path(f"/sys/fs/cgroup/memory/runbook-real-{os.getpid()}")
    group = old if old.parent.is_dir() else Path(f"/sys/fs/cgroup/runbook-real-{os.getpid()}")
    group.mkdir()
    (group / ("memory.limit_in_bytes" if group is old else "memory.max")).write_text(str(1000 * 2**20))
    try:
        yield ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
    finally:
        processes.wait(lambda: not (group / "cgroup.procs").read_text().split(), 30)
        group.rmdir()


@contextlib.contextmanager
def _port_taken(port: int) -> Iterator[list[str]]:
    """Another server on its port, before it starts."""
    with subprocess.Popen(_other_server(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        processes.wait(lambda: _listens(port), 20)
        try:
            yield []
        finally:
            other.terminate()


_LATE: list[subprocess.Popen[bytes]] = []


@contextlib.contextmanager
def _late(port: int) -> Iterator[list[str]]:
    """Ends what `_take_port` started."""
    try:
        yield []
    finally:
        while _LATE:
            other = _LATE.pop()
            other.terminate()
            other.wait(20)


def _take_port(stage: Stage) -> None:
    """Another server on its port, while it loads."""
    _LATE.append(subprocess.Popen(_other_server(stage.port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    processes.wait(lambda: _listens(stage.port), 20)


def _other_server(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _loaded_cores(port: int) -> Iterator[list[str]]:
    """Two busy processes on each core."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield []
    finally:
        for one in busy:
            one.kill()
            one.wait()


STOPPED = ("hung/stopped", "hung/blocked_peer")
DEAD = ("crashed/signal", "crashed/rank_died", "crashed/killed")
FAULTS = (
    Fault("none", "nothing", ("passed",)),
    _signal("main", signal.SIGSTOP, "load", STOPPED, "sglang"),
    _signal("main", signal.SIGKILL, "load", DEAD, "sglang"),
    _signal("scheduler", signal.SIGSTOP, "load", STOPPED, "sglang"),
    _signal("scheduler", signal.SIGKILL, "load", DEAD, "sglang"),
    _signal("detokenizer", signal.SIGSTOP, "load", STOPPED, "sglang"),
    _signal("detokenizer", signal.SIGKILL, "load", DEAD, "sglang"),
    _signal("main", signal.SIGSTOP, "serving", STOPPED, "sglang"),
    _signal("scheduler", signal.SIGSTOP, "serving", STOPPED, "sglang"),
    _signal("scheduler", signal.SIGKILL, "serving", DEAD, "sglang"),
    _signal("detokenizer", signal.SIGSTOP, "serving", STOPPED, "sglang"),
    _signal("detokenizer", signal.SIGKILL, "serving", DEAD, "sglang"),
    _signal("main", signal.SIGSTOP, "load", STOPPED, "vllm"),
    _signal("main", signal.SIGKILL, "load", DEAD, "vllm"),
    _signal("engine_core", signal.SIGSTOP, "load", STOPPED, "vllm"),
    _signal("engine_core", signal.SIGKILL, "load", DEAD, "vllm"),
    _signal("worker", signal.SIGSTOP, "load", STOPPED, "vllm"),
    _signal("worker", signal.SIGKILL, "load", DEAD, "vllm"),
    _signal("engine_core", signal.SIGSTOP, "serving", STOPPED, "vllm"),
    _signal("engine_core", signal.SIGKILL, "serving", DEAD, "vllm"),
    _signal("worker", signal.SIGSTOP, "serving", STOPPED, "vllm"),
    _signal("worker", signal.SIGKILL, "serving", DEAD, "vllm"),
    Fault("memory_limit", "a memory limit of 1 GB", ("crashed/oom_host",), around=_memory_limit),
    Fault("port_taken_before", "its port is another server's already", ("wrong_server",), around=_port_taken),
    Fault(
        "port_taken_after",
        "another server takes its port while it loads",
        ("crashed/port_in_use", "wrong_server"),
        act=_take_port,
        around=_late,
        phase="args",
    ),
    Fault("compile_cold", "it compiles, with an empty cache", ("passed",), engines=("vllm",), compiles=True),
    Fault("compile_warm", "it compiles, with a warm cache", ("passed",), engines=("vllm",), compiles=True),
    Fault("cores_loaded", "four busy processes on the two cores", ("passed",), around=_loaded_cores),
)
