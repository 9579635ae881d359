"""What is done to a real engine from outside: signals, limits, files, and other processes.

An `Act` strikes at a moment. An `Around` is there from before the launch until all of the engine has ended; it may put words before
the engine's command, add variables, or name the log. Limits of cgroups and the small disk need root and cgroup v1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from runbook.lab import processes
from tests.real.engines import Engine, Step
from tests.real.looking import Stage
from tests.real.place import model

MIB = 2**20


class Scene(Stage):
    """One start and what was done to it. `hurt`: who was signalled; `log`: of the server, once it was launched."""

    def __init__(self, state: Path, engine: Engine, port: int) -> None:
        super().__init__(state, engine, port)
        self.hurt: processes.Process | None = None
        self.log = Path()
        self._since: dict[processes.Process, float] = {}

    def known_s(self, victim: str) -> float:
        """Since it was first found by its name; 0 when it is not there."""
        found = self.find(victim)
        return time.monotonic() - self._since.setdefault(found, time.monotonic()) if found else 0.0

    def send(self, victim: str, number: int) -> None:
        """Signal it."""
        self.hurt = self.find(victim)
        assert self.hurt is not None, f"no {victim}"
        processes.send(self.hurt, number)

    def undo(self) -> None:
        """Who was stopped goes on."""
        if self.hurt is not None:
            processes.send(self.hurt, signal.SIGCONT)
        self.hurt = None


class Changes(NamedTuple):
    """What an `Around` asks of the launch, and steps before and after it."""

    words: tuple[str, ...] = ()
    env: dict[str, str] = {}
    log: str = "auto"
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()


Act = Callable[[Scene], object]
Around = Callable[[Scene], AbstractContextManager[Changes]]


def stop(victim: str) -> Act:
    """SIGSTOP; `undo` lets it go on."""
    return lambda scene: scene.send(victim, signal.SIGSTOP)


def kill(victim: str) -> Act:
    """SIGKILL, until it is dead: on a busy machine the kernel needs a while to take a large process down."""

    def act(scene: Scene) -> None:
        scene.send(victim, signal.SIGKILL)
        dying = scene.hurt
        assert dying is not None and processes.wait(lambda: not processes.alive(dying), 30), f"{victim} outlived SIGKILL"

    return act


def rename_log(scene: Scene) -> None:
    """As logrotate does by default: another name, and a new empty file that nobody writes into."""
    scene.log.rename(scene.log.with_suffix(".log.1"))
    scene.log.touch()


def truncate_log(scene: Scene) -> None:
    """As logrotate's copytruncate."""
    os.truncate(scene.log, 0)


def fill_disk(scene: Scene) -> None:
    """No byte is left where its log lies."""
    with contextlib.suppress(OSError), (scene.log.parent / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


@contextlib.contextmanager
def plain(scene: Scene) -> Iterator[Changes]:
    """Nothing."""
    yield Changes()


@contextlib.contextmanager
def memory_limit(scene: Scene) -> Iterator[Changes]:
    """1000 MiB for all its processes together: enough for one, too little for all."""
    with _cgroup("memory", "memory.limit_in_bytes", str(1000 * MIB)) as words:
        yield Changes(words)


@contextlib.contextmanager
def slow_disk(scene: Scene) -> Iterator[Changes]:
    """64 KiB/s from the disk that holds the weights, none of which is in the page cache."""
    for path in model(".").rglob("*.safetensors"):
        with path.open("rb") as weights:
            os.fsync(weights.fileno())
            os.posix_fadvise(weights.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    device = os.stat(model("target")).st_dev
    with _cgroup("blkio", "blkio.throttle.read_bps_device", f"{os.major(device)}:{os.minor(device)} {64 * 1024}") as words:
        yield Changes(words)


@contextlib.contextmanager
def small_disk(scene: Scene) -> Iterator[Changes]:
    """A disk of its own for the log, to be filled."""
    with tempfile.TemporaryDirectory(prefix="disk-") as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
        try:
            yield Changes(log=f"{place}/server.log")
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@contextlib.contextmanager
def loaded_cores(scene: Scene) -> Iterator[Changes]:
    """Two busy processes on each core."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield Changes()
    finally:
        for one in busy:
            one.kill()
            one.wait()


@contextlib.contextmanager
def port_taken(scene: Scene) -> Iterator[Changes]:
    """Another server of the host has its port before it starts."""
    yield Changes(before=_other_server(scene))


@contextlib.contextmanager
def port_lost(scene: Scene) -> Iterator[Changes]:
    """Another server of the host takes its port while it loads."""
    yield Changes(after=_other_server(scene))


@contextlib.contextmanager
def asked(scene: Scene) -> Iterator[Changes]:
    """A wrapper asks something on a stdin that is a pipe; who could write into it waits for the wrapper's end."""
    asks = 'printf "Proceed? [y/N] "; read -r answer; exec "$0" "$@"'
    launcher = f"import subprocess, sys; sys.exit(subprocess.Popen(['sh', '-c', {asks!r}, *sys.argv[1:]], stdin=subprocess.PIPE).wait())"
    yield Changes(("python3", "-c", launcher))


@contextlib.contextmanager
def cold_bytecode(scene: Scene) -> Iterator[Changes]:
    """No module was ever compiled by the interpreter."""
    with tempfile.TemporaryDirectory(prefix="bytecode-") as place:
        yield Changes(env={"PYTHONPYCACHEPREFIX": place, "PYTHONDONTWRITEBYTECODE": ""})


@contextlib.contextmanager
def _cgroup(controller: str, file: str, limit: str) -> Iterator[tuple[str, ...]]:
    """Words that put a command into a group with this limit."""
    group = Path(f"/sys/fs/cgroup/{controller}/runbook-real-{os.getpid()}")
    group.mkdir()
    try:
        (group / file).write_text(limit)
        yield "/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"'
    finally:
        processes.wait(lambda: not (group / "cgroup.procs").read_text().split(), 30)
        group.rmdir()


def _other_server(scene: Scene) -> tuple[Step, ...]:
    """Launched by the run as well, so that it is on the lab: what runs beside the lab is hidden from it."""
    command = ["python3", "-m", "http.server", str(scene.port), "--bind", "127.0.0.1"]
    other = {"id": "other", "launch": {"command": command, "port": scene.port}}
    return other, {"wait_healthy": {"server": "other", "path": "/"}}
