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
import urllib.request
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

    def undo(self) -> None:
        """What was stopped goes on."""
        while self.hurt:
            processes.send(self.hurt.pop(), signal.SIGCONT)

    def serves(self) -> bool:
        """Whether its health path says 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


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


def _killed(victim: str, moment: str, engine: str) -> Fault:
    when = "while it loads" if moment == "load" else "while it serves"
    return Fault(
        f"{victim}_killed_{moment}",
        f"{victim.replace('_', ' ')} SIGKILL {when}",
        DEAD,
        moment,
        victim,
        lambda stage: stage.send(victim, signal.SIGKILL),
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
DEAD = ("crashed/signal", "crashed/rank_died")
VICTIMS = {"sglang": ("main", "scheduler", "detokenizer"), "vllm": ("main", "engine_core", "worker")}
FAULTS = (
    Fault("none", "nothing", ("passed",)),
    *(_killed(victim, moment, engine) for engine in BOTH for moment in ("load", "serving") for victim in VICTIMS[engine]),
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
    Fault("cores_loaded", "four busy processes on the two cores", ("passed",), around=_loaded_cores),
)
