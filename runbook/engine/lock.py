"""The controller's lock: one process at a time goes on with a run. Its file says who; the kernel lets go of it at any death."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCK = "controller.lock"
MOST_BYTES = 1 << 16


class Held(Exception):
    """Another process has the run. `holder` is what it said of itself: host, user, pid, start, boot_id; empty when it cannot be read."""

    def __init__(self, holder: dict[str, Any], why: str = "") -> None:
        who = f"pid {holder.get('pid', '?')} of {holder.get('user', 'somebody')} on {holder.get('host', 'this machine')}"
        super().__init__(why or f"{who} goes on with it at this moment: `runbook show --follow` shows it")
        self.holder = holder


@contextlib.contextmanager
def hold(folder: Path, who: dict[str, Any]) -> Iterator[None]:
    """Have the run in this folder, or raise Held. Raises OSError when the folder cannot be written.

    What an earlier holder said and this one does not, as which hosts the run is on, stays.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(_read(descriptor)) from None
        said = {**_read(descriptor), **who}
        _write(descriptor, said)
        try:
            yield
        finally:
            _write(descriptor, {**said, "pid": None})  # its process may live on, and has not the run any more
    finally:
        os.close(descriptor)


def last_holder(folder: Path) -> dict[str, Any]:
    """What the last process to have the run said of itself, whether it lives or not; empty when nobody had it. No pid: it let go."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, said: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a full disk: the lock itself stands
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)


def _read(descriptor: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(descriptor, MOST_BYTES, 0))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
