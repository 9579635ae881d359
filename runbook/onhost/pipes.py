"""Open pipe ends of a process: how full each pipe is, and who holds the other end.

To ask a pipe for its fill it must be opened. That is done without blocking, for the same end that the process itself holds open, and
closed at once. The number of readers or writers then goes from at least one to one more and back, so nobody's open() is let through and
nobody who waits is woken; were the process to close that end in just these microseconds, the other side would learn of it at our close.
"""

import array
import errno
import fcntl
import os
import select
import termios
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from .descriptors import READS, WRITES, Descriptor, Holders

MOST_PIPES = 64
_GET_SIZE = 1032  # F_GETPIPE_SZ, linux/fcntl.h


class End(NamedTuple):
    """One end, as `PipeSample` has it but for its peers. `alone`: nobody holds the other end; None when it could not be asked."""

    fd: int
    end: str
    name: str
    fill: Optional[int]
    capacity: Optional[int]
    alone: Optional[bool]


def ends(pid: int, found: Sequence[Descriptor], fifos: Sequence[Descriptor]) -> List[End]:
    """The process's pipe ends. An empty pipe from a process to itself only wakes its own poll loop and is left out."""
    pipes = [one for one in found if one.name.startswith("pipe:[")] + list(fifos)
    to_itself = {one.name for one in pipes if one.mode & READS} & {one.name for one in pipes if one.writes}
    rows = []
    for one in pipes[:MOST_PIPES]:
        end = ask(pid, one)
        if not (one.name in to_itself and end.fill == 0):
            rows.append(end)
    return rows


def ask(pid: int, one: Descriptor) -> End:
    """One end; its figures None where they cannot be asked without taking part in it."""
    side = "write" if one.writes else "read"
    unknown = End(one.fd, side, one.name, None, None, None)
    if one.mode == READS | WRITES:
        return unknown
    flags = (os.O_WRONLY if one.writes else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open("/proc/%d/fd/%d" % (pid, one.fd), flags)
    except OSError as problem:
        return unknown._replace(alone=True) if problem.errno == errno.ENXIO else unknown  # a FIFO that nobody reads; else gone or not ours
    try:
        count = array.array("i", [0])
        fcntl.ioctl(fd, termios.FIONREAD, count)
        return End(one.fd, side, one.name, count[0], fcntl.fcntl(fd, _GET_SIZE), _alone(fd))
    except OSError:
        return unknown
    finally:
        os.close(fd)


def _alone(fd: int) -> bool:
    """The kernel tells of a write end without readers, and of a read end without writers, whoever may see them."""
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def rows(held: Sequence[End], holders: Holders, complete: bool) -> List[Dict[str, Any]]:
    """The ends with the processes that hold the other end; the process itself among them where it does."""
    found = []
    for end in held:
        peers = [] if end.alone else sorted(holders.of(end.name, WRITES if end.end == "read" else READS))
        known = bool(peers) or (complete if end.alone is None else end.alone)
        plain = end._asdict()
        del plain["alone"]
        found.append(dict(plain, peers=peers, peers_known=known))
    return found
