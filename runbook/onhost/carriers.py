"""Threads of the collectives' own libraries: they carry what ranks send each other, and wake nobody on their own.

A loop over descriptors alone does not tell one: a client of a store or of a cache waits in the same system call, with a timer, or for
somebody elsewhere. So both count: the name that the library gives its thread, and what the loop watches.
"""

import os
import re
from typing import Any, Dict, List, Optional, Set

from . import procs
from .descriptors import Holders, descriptors
from .rights import read_file
from .sockets import Found

LOOPS = re.compile(r"gloo_tcp_loop|pt_tcpstore_uv")
NCCL = re.compile(r"NCCL (?:Service|Progress|UDS|I/O|RAS)")
_EPOLL = {"x86_64": (232, 281, 441), "aarch64": (22, 441)}.get(os.uname().machine, ())
_OWN = ("pipe:[", "anon_inode:[eventfd]", "anon_inode:[io_uring]")
_WATCHED = re.compile(rb"^tfd:\s*(\d+) ", re.MULTILINE)
Row = Dict[str, Any]


def note(pid: int, calls: List[Row], found: Found, ends: Dict[str, str], holders: Holders) -> None:
    """Name such threads among a process's calls by `carries`; `peers` are all that a loop hears. `ends`: of each socket the other one."""
    for call in calls:
        name = (procs.read_bytes("/proc/%d/task/%d/comm" % (pid, call["tid"]), 64) or b"").decode("utf-8", "replace").strip()
        if NCCL.match(name):
            call["carries"] = name
        elif LOOPS.fullmatch(name):
            heard = _heard(pid, call["tid"], found, ends, holders)
            if heard is not None:
                call.update(carries=name, peers=sorted(heard))


def _heard(pid: int, tid: int, found: Found, ends: Dict[str, str], holders: Holders) -> Optional[Set[int]]:
    """The processes at the other ends of all that its loop watches; None where it watches more than connections of this host.

    One of our own, as a check of a port that is no server's, brings it nothing.
    """
    try:
        fields = read_file("/proc/%d/task/%d/syscall" % (pid, tid), 256).split()
        if len(fields) < 7 or int(fields[0]) not in _EPOLL:
            return None
        watched = _WATCHED.findall(read_file("/proc/%d/fdinfo/%d" % (pid, int(fields[1], 16)), 1 << 16))
        names = [os.readlink("/proc/%d/fd/%d" % (pid, int(fd))) for fd in watched]
        ours = {one.name for one in descriptors(os.getpid())}
    except OSError:
        return None
    listening = {"socket:[%d]" % one.inode for one in found.ours if one.state == "LISTEN"}
    heard: Set[int] = set()
    for name in names:
        other = name if name.startswith("pipe:[") else ends.get(name, "")
        who = holders.of(other)
        if not who and name not in listening and not name.startswith(_OWN) and other not in ours:
            return None
        heard |= who
    return heard if names else None
