"""Leases as those see them who have another state folder on this host: one small file each, in a folder that all may write.

    /tmp/.runbook-lease-RANDOM    mode 0644, made anew, never through a link; its time is that of the last renewal

The file's owner says whose lease it is, never its text: nobody can speak for another account, nor, below the sticky bit, take away what
another one says. No file is shared either: the lock is that of the folder itself, so nothing of it stays.
"""

import contextlib
import fcntl
import json
import math
import os
import stat
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from . import procs
from .errors import OpError

VARIABLE = "RUNBOOK_LEASES"
"""Names another folder: where each account has a /tmp of its own, or for a host of its own on this machine, as the lab is."""
PREFIX = ".runbook-lease-"
MOST_BYTES = 4096
MOST_FILES = 1000
LOCK_S = 5.0


class Notice(NamedTuple):
    """What a file says. `uid`: its owner; `renewed`: its time."""

    path: str
    uid: int
    renewed: float
    record: Dict[str, Any]


def folder() -> str:
    """Where they lie."""
    return os.environ.get(VARIABLE) or "/tmp"


def problem() -> str:
    """Why accounts cannot tell each other here; empty when they can."""
    path = folder()
    try:
        status = os.stat(path)
    except OSError as error:
        return "%s: %s" % (path, error.strerror)
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return ""  # nobody else can put anything there
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or not status.st_mode & stat.S_ISVTX:
        return "%s is no folder of root with the sticky bit" % path
    return "" if os.access(path, os.W_OK | os.X_OK) else "%s is not writable for this account" % path


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Nobody else takes a lease meanwhile. Raises OpError busy when another account keeps the lock."""
    fd = os.open(folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_S
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                raise OpError("busy", "%s stayed locked for %.0f s" % (folder(), LOCK_S), "see who holds it: `lslocks`")
            time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def post(path: str, record: Dict[str, Any]) -> str:
    """Write it, in place of the one at `path` where there is one; answers its path. Raises OSError."""
    place = path or os.path.join(folder(), PREFIX + os.urandom(8).hex())
    draft = os.path.join(os.path.dirname(place), ".runbook-draft-" + os.urandom(8).hex())
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(record).encode("ascii"))
        os.fchmod(fd, 0o644)
        os.rename(draft, place)
    except OSError:
        withdraw(draft)
        raise
    finally:
        os.close(fd)
    return place


def withdraw(path: str) -> None:
    """Take our own away; what is not ours the folder's sticky bit keeps."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def read_all() -> List[Notice]:
    """Every one that can be read, of all accounts; what is damaged or no plain file says nothing."""
    found: List[Notice] = []
    try:
        with os.scandir(folder()) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return []
    for name in sorted(names)[:MOST_FILES]:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            found.append(_read(os.path.join(folder(), name)))
    return found


def _read(path: str) -> Notice:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no plain file")
        return Notice(path, status.st_uid, status.st_mtime, _checked(json.loads(os.read(fd, MOST_BYTES).decode("ascii"))))
    finally:
        os.close(fd)


def _checked(data: Dict[str, Any]) -> Dict[str, Any]:
    """Text of another account, as plain data of known shape. Raises ValueError, TypeError, KeyError."""
    gpus = data["gpus"]
    if gpus is not None and not all(isinstance(one, int) for one in gpus):
        raise ValueError("gpus")
    numbers = {name: float(data[name]) for name in ("since", "hold_s")}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError("a number")
    expires = data.get("expires")
    return {
        **numbers,
        "run": str(data["run"])[:128],
        "by": str(data.get("by", ""))[:128],
        "holder": str(data["holder"])[:200],
        "gpus": gpus,
        "expires": None if expires is None else float(expires),
        "boot_id": str(data["boot_id"]),
        "pids": str(data["pids"]),
        "helper": _process(data["helper"]),
        "keeper": _process(data["keeper"]) if data.get("keeper") else None,
    }


def _process(data: Dict[str, Any]) -> Dict[str, int]:
    return {"pid": int(data["pid"]), "start": int(data["start"])}


def alive(process: Optional[Dict[str, int]], pids: str) -> Optional[bool]:
    """Whether it lives; None where that cannot be seen: another namespace of processes, or /proc hides those of others."""
    if process is None:
        return False
    if pids != namespace() or procs.read_stat(1) is None:
        return None
    return procs.is_alive(process["pid"], process["start"])


def namespace() -> str:
    """In which processes have these numbers."""
    return procs.read_link("/proc/self/ns/pid") or ""
