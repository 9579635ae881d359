"""Real processes for tests: each in a session of its own, ended at the end of the test by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runbook.hosts.base import ProcessId
from tests.support.waiting import until


def state_of(pid: int) -> str | None:
    """The state letter of a process; None when it is gone. A zombie is `Z`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def is_gone(pid: int) -> bool:
    """Dead, or a zombie that nobody has reaped yet."""
    return state_of(pid) in (None, "Z")


def start_of(pid: int) -> ProcessId:
    """Its lasting name."""
    return ProcessId(pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


def children(pid: int) -> list[int]:
    """pids of its children."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


@contextlib.contextmanager
def python(code: str, *args: str, argv0: str | None = None, **kwargs: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that prints `ready` when it is set up; its whole session is ended afterwards."""
    child = subprocess.Popen(
        [argv0 or sys.executable, "-c", code, *args],
        executable=sys.executable,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        **kwargs,  # type: ignore[call-overload]
    )
    try:
        assert child.stdout is not None
        until(lambda: child.stdout.readline().strip() == "ready")
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
