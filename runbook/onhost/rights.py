"""What of a process may be read, told in words. A refusal is learnt once per owner, so that each look does not try again."""

import os
from typing import Any, Dict, Optional, Set, Tuple

from . import careful, procs
from .sources import absent, blind

_REFUSED = (1, 13)  # EPERM, EACCES


class Rights:
    """Reads below /proc/PID that need the server's own user or root: io, maps, fd, environ."""

    def __init__(self) -> None:
        self._refused: Set[Tuple[int, str]] = set()

    def refusal(self, stat: procs.Stat, what: str) -> Optional[Dict[str, Any]]:
        """Why it is not even tried: its owner's files of that kind were refused before."""
        uid = owner(stat.pid)
        return refused(uid) if uid is not None and (uid, what) in self._refused else None

    def explain(self, stat: procs.Stat, what: str, problem: Exception) -> Dict[str, Any]:
        """The answer for a read that failed."""
        if isinstance(problem, careful.Stuck):
            return blind("/proc/%d/%s: %s; the process may hold its memory's lock in the kernel" % (stat.pid, what, problem))
        code = problem.errno if isinstance(problem, OSError) else None
        if code in _REFUSED:
            uid = owner(stat.pid)
            if uid is not None and uid != os.geteuid():
                self._refused.add((uid, what))
            return refused(uid)
        if stat.state in "ZX":
            return absent("a zombie has none")
        return blind(
            "/proc/PID/%s: the process is gone" % what if code in (2, 3) else "/proc/%d/%s: %s" % (stat.pid, what, _words(problem))
        )


def _words(problem: Exception) -> str:
    return str(problem.strerror) if isinstance(problem, OSError) else str(problem)


def owner(pid: int) -> Optional[int]:
    """The process's effective user id; None when it is gone."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def refused(uid: Optional[int]) -> Dict[str, Any]:
    """Not ours to read."""
    if uid is None or uid == os.geteuid():
        return blind("not permitted: the process has locked itself against its own user; run as root")
    return blind("not permitted: run as the server's user (%s) or root" % procs.user_name(uid))


def read_file(path: str, most: int = 1 << 20) -> bytes:
    """A /proc file's content, at most `most` bytes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while most > 0:
            part = os.read(fd, min(most, 1 << 16))
            if not part:
                break
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
