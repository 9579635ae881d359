"""Threads of a process: clocks, switches, state, wait channel.

A thread that ran neither longer nor once more since the look before is still where it was: only its schedstat is read again, by a
descriptor that stays open. Of one that ran, state and wait channel are read anew.
"""

import errno
import functools
import os
import re
import resource
from typing import Any, Dict, List

from . import procs
from .rights import read_file

MOST_THREADS = 2000  # of one process
RESERVE = 256  # descriptors for everything else that the helper does
Row = Dict[str, Any]
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


class Room:
    """How many descriptors may stay open: what this process may have, but for RESERVE."""

    def __init__(self) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.left = max(0, most - RESERVE) if most != resource.RLIM_INFINITY else 1 << 16


class _Thread:
    """What is known of one: its open schedstat (-1: there was no room for it), what that said last, and the row made of it."""

    __slots__ = ("fd", "folder", "raw", "row")

    def __init__(self, folder: str, room: Room) -> None:
        self.folder, self.fd, self.raw = folder, -1, b""
        self.row: Row = {}
        if room.left > 0 and keeps_clocks():
            try:
                self.fd = os.open(folder + "/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                room.left -= 1
            except OSError as problem:
                if problem.errno != errno.EMFILE:
                    raise

    def close(self, room: Room) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            room.left += 1


class Threads:
    """Of one process, look after look."""

    def __init__(self, pid: int) -> None:
        self._pid, self._folder = pid, "/proc/%d/task" % pid
        self._known: Dict[int, _Thread] = {}

    def look(self, room: Room, count: int) -> List[Row]:
        """Each thread that could be read, at most MOST_THREADS; one that ends while we look is left out.

        `count`: how many the process has. While all that are known live and are so many, they are not listed again.
        """
        rows = self._read(room)
        if count != len(self._known):
            self._list(room)
            rows = self._read(room)
        return rows

    def _list(self, room: Room) -> None:
        try:
            tids = procs.main_first(self._pid, map(int, os.listdir(self._folder)))[:MOST_THREADS]
        except OSError:
            tids = []
        before, self._known = self._known, {}
        for tid in tids:
            try:
                self._known[tid] = before.pop(tid) if tid in before else _Thread("%s/%d" % (self._folder, tid), room)
            except OSError:
                continue  # it has ended
        for thread in before.values():
            thread.close(room)

    def _read(self, room: Room) -> List[Row]:
        rows, ended, pread = [], [], os.pread
        for tid, thread in self._known.items():
            try:
                raw = pread(thread.fd, 96, 0) if thread.fd >= 0 else _clocks(thread.folder)
                if raw != thread.raw:
                    thread.row, thread.raw = _row(thread.folder, tid, raw), raw
                rows.append(thread.row)
            except OSError:  # it has ended; its number may be another's by now
                ended.append(tid)
        for tid in ended:
            self._known.pop(tid).close(room)
        return rows

    def close(self, room: Room) -> None:
        """Give the descriptors back."""
        for thread in self._known.values():
            thread.close(room)
        self._known.clear()


@functools.lru_cache(maxsize=None)
def keeps_clocks() -> bool:
    """Whether this kernel counts in schedstat; without, it has zeros there, which must not pass for a thread that never ran."""
    return (procs.read_bytes("/proc/self/schedstat", 96) or b"0").split()[-1] != b"0"


def _clocks(folder: str) -> bytes:
    """As schedstat has them. Raises OSError.

    Where the kernel has none: run time in steps of a clock tick, no waiting time, and the switches, from files that every kernel has.
    """
    if keeps_clocks():
        return read_file(folder + "/schedstat", 96)
    ticks = procs.parse_stat(read_file(folder + "/stat", 4096)).cpu_ticks
    switches = sum(int(count) for count in _SWITCHES.findall(read_file(folder + "/status", 8192)))
    return b"%d 0 %d" % (ticks * 1000000000 // procs.TICKS_PER_S, switches)


def _row(folder: str, tid: int, clocks: bytes) -> Row:
    run_ns, wait_ns, switches = clocks.split()[:3]
    stat = read_file(folder + "/stat", 4096)
    return {
        "tid": tid,
        "state": stat[stat.rindex(b")") + 2 :][:1].decode("ascii"),
        "run_ns": int(run_ns),
        "wait_ns": int(wait_ns),
        "switches": int(switches),
        "wchan": (procs.read_bytes(folder + "/wchan", 128) or b"").decode("ascii", "replace"),
    }
