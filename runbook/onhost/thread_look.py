"""Threads of a process: clocks, switches, state, wait channel.

A thread that ran neither longer nor once more since the look before is still where it was: only its schedstat is read again, by a
descriptor that stays open. Of one that ran, state and wait channel are read anew.
"""

import functools
import os
import re
import resource
from typing import Any, Dict, List, Optional

from . import procs

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
    def __init__(self, folder: str, tid: int) -> None:
        self.tid = tid
        self.folder = "%s/%d" % (folder, tid)
        self.fd: Optional[int] = None
        self.raw = b""
        self.row: Optional[Row] = None

    def clocks(self, room: Room) -> Optional[bytes]:
        if not keeps_clocks():
            return _coarse_clocks(self.folder)
        if self.fd is not None:
            try:
                return os.pread(self.fd, 96, 0)
            except OSError:
                self.close(room)  # that thread is gone; its number may be another's by now
        if room.left <= 0:
            return procs.read_bytes(self.folder + "/schedstat", 96)
        try:
            self.fd = os.open(self.folder + "/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            room.left -= 1
            return os.pread(self.fd, 96, 0)
        except OSError:
            return None

    def look(self, room: Room) -> Optional[Row]:
        raw = self.clocks(room)
        if not raw:
            return None
        if raw != self.raw or self.row is None:
            self.raw, self.row = raw, _row(self.folder, self.tid, raw)
        return self.row

    def close(self, room: Room) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
            room.left += 1


class Threads:
    """Of one process, look after look."""

    def __init__(self, pid: int) -> None:
        self._folder = "/proc/%d/task" % pid
        self._known: Dict[int, _Thread] = {}

    def look(self, room: Room) -> List[Row]:
        """Each thread that could be read, at most MOST_THREADS; one that ends while we look is left out."""
        try:
            tids = sorted(map(int, os.listdir(self._folder)))[:MOST_THREADS]
        except OSError:
            tids = []
        for tid in self._known.keys() - set(tids):
            self._known.pop(tid).close(room)
        rows = []
        for tid in tids:
            thread = self._known.get(tid)
            if thread is None:
                thread = self._known[tid] = _Thread(self._folder, tid)
            row = thread.look(room)
            if row is not None:
                rows.append(row)
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


def _coarse_clocks(folder: str) -> Optional[bytes]:
    """As schedstat has them, from files that every kernel has: run time in steps of a clock tick, no waiting time, switches exact."""
    stat, status = procs.read_bytes(folder + "/stat", 4096), procs.read_bytes(folder + "/status", 4096)
    if not stat or not status:
        return None
    ticks = procs.parse_stat(stat).cpu_ticks
    switches = sum(int(count) for count in _SWITCHES.findall(status))
    return b"%d 0 %d" % (ticks * 1000000000 // procs.TICKS_PER_S, switches)


def _row(folder: str, tid: int, clocks: bytes) -> Optional[Row]:
    run_ns, wait_ns, switches = clocks.split()[:3]
    stat = procs.read_bytes(folder + "/stat", 4096)
    if not stat:
        return None
    return {
        "tid": tid,
        "state": stat[stat.rindex(b")") + 2 :][:1].decode("ascii"),
        "run_ns": int(run_ns),
        "wait_ns": int(wait_ns),
        "switches": int(switches),
        "wchan": (procs.read_bytes(folder + "/wchan", 128) or b"").decode("ascii", "replace"),
    }
