"""The lab's processes by /proc: what lives below the daemon, and what carries its mark after the daemon has died."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process, never reused: pid and start time in clock ticks since boot."""

    pid: int
    start: int

    @property
    def scope(self) -> str:
        """As RUNBOOK_SCOPE has it."""
        return f"{self.pid}:{self.start}"

    @property
    def title(self) -> str:
        """Its command line, for people."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""


def find(pid: int) -> Process | None:
    """The living process with this pid; a zombie has ended."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in ("Z", "X") else Process(pid, int(stat[19]))


def alive(process: Process) -> bool:
    """Whether it has not ended."""
    return find(process.pid) == process


def below(root: Process) -> list[Process]:
    """All living descendants of a process, parents before children."""
    if not alive(root):
        return []
    children: dict[int, list[Process]] = {}
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(Process(pid, int(stat[19])))
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop().pid, []):
            found.append(child)
            todo.append(child)
    return [process for process in found if alive(process)]


def marked(scope: str) -> list[Process]:
    """Living processes whose environment has RUNBOOK_SCOPE with this value, as far as we may look."""
    want = b"RUNBOOK_SCOPE=" + scope.encode()
    return [process for pid in _pids() if want in _environ(pid) and (process := find(pid)) is not None]


def send(process: Process, number: int) -> None:
    """Signal it if it is still the same process. PermissionError when it is not ours to signal."""
    if alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            pass  # it ended between the look and the signal


def end(processes: list[Process], grace_s: float = 5.0) -> list[Process]:
    """SIGTERM, SIGKILL after the grace; answers those that are still there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                send(process, number)
            except PermissionError:
                continue  # it is in the answer
        if wait(lambda: not any(map(alive, processes)), grace_s):
            return []
    return [process for process in processes if alive(process)]


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on: 0 state, 1 parent, 19 start."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
