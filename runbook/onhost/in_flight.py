"""Descriptors that are on their way: sent through a Unix socket and not received yet, so that nobody has them in his table."""

import os
import time
from typing import Iterable

from . import procs
from .rights import read_file

MOST_S = 0.5


def any_of(pids: Iterable[int]) -> bool:
    """Whether one of these has such descriptors in a queue of its own, or that could not be read in time.

    Source: `scm_fds` in fdinfo of a Unix socket, Linux 5.6; older kernels do not tell, and then there are none.
    """
    until = time.monotonic() + MOST_S
    return any(time.monotonic() > until or _queued(pid) for pid in pids)


def _queued(pid: int) -> bool:
    folder = "/proc/%d/" % pid
    try:
        sockets = [fd for fd in os.listdir(folder + "fd") if (procs.read_link(folder + "fd/" + fd) or "").startswith("socket:[")]
    except OSError:
        return False  # whoever holds what cannot be read is not known anyway
    return any(_number(folder + "fdinfo/" + fd) for fd in sockets)


def _number(path: str) -> int:
    try:
        raw = read_file(path, 4096)
    except OSError:
        return 0
    at = raw.find(b"scm_fds:")
    return int(raw[at + 8 :].split(None, 1)[0]) if at >= 0 else 0
