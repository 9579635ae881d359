"""The process table for looks that follow one another: a cheap one reads only what is new and what it asks for."""

import os
import time
from typing import Dict, Iterable, Optional, Set

from . import procs

WHOLE_S = 15.0  # at the latest then every process is read again
KERNEL_S = 120.0  # and the kernel's threads, whose numbers may have become those of processes


class ProcessTable:
    """What /proc said, by pid. Processes outside the asked tree may be as old as WHOLE_S."""

    def __init__(self) -> None:
        self._stats: Dict[int, procs.Stat] = {}
        self._others: Set[int] = set()
        self._whole_at = self._kernel_at = float("-inf")

    def read(self, moving: Optional[Iterable[int]]) -> Dict[int, procs.Stat]:
        """All processes; only those of `moving` and those that are new are read, or every one with None."""
        now = time.monotonic()
        if now - self._kernel_at > KERNEL_S:
            self._kernel_at, self._others = now, set()
        if moving is None or now - self._whole_at > WHOLE_S:
            self._whole_at, self._stats = now, {}
        here = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._stats.keys() - here:
            del self._stats[pid]
        self._others &= here
        for pid in (here - self._stats.keys() - self._others) | (set(moving or ()) & here):
            stat = procs.read_stat(pid)
            if stat is None:
                self._stats.pop(pid, None)
            elif procs.is_kernel_thread(stat):
                self._others.add(pid)
            else:
                self._stats[pid] = stat
        return dict(self._stats)
