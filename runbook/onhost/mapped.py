"""Resident bytes of a process's mapped weight files: what a loader that maps its shards has read, to the page.

Linux 6.7 and later count the pages of just these mappings (the PAGEMAP_SCAN request of /proc/PID/pagemap); before that there is only
smaps, which walks all that the process has. Both take the longer the more is resident, so a look rests in proportion to its cost.
"""

import array
import fcntl
import os
import re
import struct
import time
from typing import Any, Dict, Hashable, List, Optional, Tuple

from .rights import read_file
from .sources import absent, blind, seen

MOST_MAPS = 16 << 20
MOST_SMAPS = 64 << 20
REST = 1000  # so many times as long as a look took, none is made: 0.1 % of a core at most
MAPS_S = 30.0  # how long mappings are believed to be the same while the size of all of them is
LIMIT_S = 0.4
_WEIGHTS = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) .*\.(?:safetensors|gguf|bin|pt)(?: \(deleted\))?$", re.MULTILINE)
_RSS = re.compile(rb"^Rss:\s+(\d+) kB", re.MULTILINE)
_PAGEMAP_SCAN = 0xC0606610  # linux/fs.h
_SCAN = struct.Struct("=12Q")  # struct pm_scan_arg; its fifth field says where the walk ended
_PRESENT = 8
_REGIONS = 1024  # of 24 bytes: start, end, categories


class Unsupported(Exception):
    """This kernel cannot count the pages of a range."""


class Weights:
    """Of one process, look after look."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._state: Optional[Hashable] = None
        self._found: Dict[str, Any] = {}
        self._free_at = float("-inf")
        self._ranges: List[Tuple[int, int]] = []
        self._size, self._mapped_at = -1, float("-inf")
        self._counts_ranges = True

    def read(self, faults: int, size: int, resident: int) -> Dict[str, Any]:
        """Seen bytes, Absent without such a mapping. Raises OSError; can block while somebody holds the process's memory lock.

        Page faults, size of all mappings, resident bytes of mapped files: while none of them moves, no page of a file was mapped.
        """
        state = (faults, size, resident)
        if state == self._state:
            return self._found
        began, spent = time.monotonic(), time.thread_time()
        if began < self._free_at:
            return blind("not sampled")
        if size != self._size or began - self._mapped_at > MAPS_S:
            self._ranges, self._size, self._mapped_at = self.find(), size, began
        try:
            self._found = self._count() if self._ranges else absent()
            self._state = state
        finally:
            self._free_at = time.monotonic() + REST * (time.thread_time() - spent)
        return self._found

    def find(self) -> List[Tuple[int, int]]:
        """Address ranges of weight files. Raises OSError."""
        maps = read_file("/proc/%d/maps" % self._pid, MOST_MAPS)
        return [(int(one.group(1), 16), int(one.group(2), 16)) for one in _WEIGHTS.finditer(maps)]

    def _count(self) -> Dict[str, Any]:
        if self._counts_ranges:
            try:
                return seen(resident_bytes(self._pid, self._ranges))
            except Unsupported:
                self._counts_ranges = False
        return seen(weight_rss(read_file("/proc/%d/smaps" % self._pid, MOST_SMAPS)))


def resident_bytes(pid: int, ranges: List[Tuple[int, int]]) -> int:
    """Bytes of these address ranges that are in memory. Raises Unsupported, OSError, TimeoutError when it takes too long."""
    deadline = time.monotonic() + LIMIT_S
    regions = array.array("Q", bytes(24 * _REGIONS))
    total = 0
    fd = os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for begin, end in ranges:
            while begin < end:
                asked = bytearray(_SCAN.pack(_SCAN.size, 0, begin, end, 0, regions.buffer_info()[0], _REGIONS, 0, 0, _PRESENT, 0, _PRESENT))
                count = _scan(fd, asked)
                total += sum(regions[1 : 3 * count : 3]) - sum(regions[0 : 3 * count : 3])
                begin = max(_SCAN.unpack(asked)[4], begin + 1)
                if time.monotonic() > deadline:
                    raise TimeoutError(110, "its mapped pages were not counted in %.1f s" % LIMIT_S)
    finally:
        os.close(fd)
    return total


def _scan(fd: int, asked: bytearray) -> int:
    try:
        return fcntl.ioctl(fd, _PAGEMAP_SCAN, asked)
    except OSError as problem:
        if problem.errno in (22, 25):  # EINVAL, ENOTTY
            raise Unsupported from problem
        raise


def weight_rss(smaps: bytes) -> int:
    """Sum of Rss, bytes, over the mappings of weight files."""
    total = 0
    for mapping in _WEIGHTS.finditer(smaps):
        rss = _RSS.search(smaps, mapping.end())
        total += int(rss.group(1)) * 1024 if rss else 0
    return total
