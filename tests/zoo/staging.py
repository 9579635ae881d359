"""A scenario's processes: a folder, a script with an ordinary name, started in process groups of their own and ended for certain."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import start_of
from tests.support.waiting import until
from tests.zoo.actor import MODULES
from tests.zoo.disguise import lay_out
from tests.zoo.scenario import Scenario

ROOT = Path(__file__).parents[2]
SCRIPTS = ("serve.py", "launch_server.py", "worker.py", "run_engine.py", "api_server.py", "main.py")
LOGS = ("server.log", "out.log", "engine-0.log", "nohup.out")


class Staged(NamedTuple):
    """The watched process and what belongs to it."""

    folder: Path
    pid: int
    start: int
    log: Path
    port: int | None

    def stuck_at(self) -> float | None:
        """When the last real progress ended; None while it goes on."""
        times = [float(text) for path in self.folder.glob("stuck-*") if (text := path.read_text())]
        return max(times) if times else None

    def culprit(self) -> tuple[int | None, int | None]:
        """(pid, rank) to blame, each None when nobody is known."""
        try:
            pid, _, rank = (self.folder / "culprit").read_text().partition(" ")
        except OSError:
            return None, None
        return (int(pid) if pid else None), (int(rank) if rank else None)


@contextlib.contextmanager
def staged(scenario: Scenario, seed: int) -> Iterator[Staged]:
    """Start it; whatever happens, nothing of it is left. Call it in a thread that lives as long as the scenario."""
    folder = Path(tempfile.mkdtemp(prefix="srv-"))
    rng = random.Random(seed * 7919)
    script, log = folder / rng.choice(SCRIPTS), folder / rng.choice(LOGS)
    started: list[subprocess.Popen[bytes]] = []
    port = _free_port() if scenario.serves else None
    try:
        lay_out(MODULES, seed, folder)
        if port is not None:
            (folder / "port").write_text(str(port))
        if scenario.outside is not None:
            _write(folder / "peer.py", scenario.name, "outside", seed, folder)
            started.append(_start(folder / "peer.py", folder / "peer.log"))
            until((folder / "outside").exists, 60)
        _write(script, scenario.name, "inside", seed, folder)
        flags = ["--port", str(port)] if port else []
        started.append(_start(script, log, *flags, stdin=subprocess.PIPE if scenario.stdin == "pipe" else subprocess.DEVNULL))
        main = started[-1].pid
        yield Staged(folder, main, start_of(main).start, log, port)
    finally:
        for process in started:
            _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _write(script: Path, name: str, role: str, seed: int, folder: Path) -> None:
    call = f"from tests.zoo.actor import main\nmain({name!r}, {role!r}, {seed}, {str(folder)!r})\n"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{call}")


def _start(script: Path, log: Path, *flags: str, **streams: Any) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        argv = [sys.executable, str(script), *flags]
        return subprocess.Popen(
            argv, stdout=out, stderr=out, cwd=script.parent, env=_environment(script.parent), start_new_session=True, **streams
        )


def _environment(home: Path) -> dict[str, str]:
    """Caches lie in the scenario's folder: in their default place, or where a variable says."""
    moved = {"TORCH_EXTENSIONS_DIR": str(home / "extensions")} if home.name[-1] in "abcdefghijklm" else {}
    return {**os.environ, "HOME": str(home), **moved}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group, and wait until it is empty."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.poll()
        if not _members(process.pid):
            break
        time.sleep(0.05)
    if process.stdin is not None:
        process.stdin.close()
    process.wait(10)


def _members(group: int) -> list[int]:
    """Living processes of a group."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split() if name.isdigit() else []
            if fields and int(fields[2]) == group and fields[0] not in "ZX":
                found.append(int(name))
    return found


def _free_port() -> int:
    """Below those that the kernel gives to outgoing connections, and not by the seed: others start at the same time."""
    rng = random.SystemRandom()
    while True:
        port = rng.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
