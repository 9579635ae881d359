"""What one look at a server leaves for the next one, as long as the helper lives: nothing here has to survive it."""

import threading
import time
from typing import Any, Dict, Iterable, List, Set, Tuple

from . import procs
from .descriptors import Holders
from .kernel_log import KernelLog
from .ports import Ports
from .process_look import ProcessEye
from .process_table import ProcessTable
from .rights import Rights
from .thread_look import Room

FORGET_S = 120.0  # a process that nobody asked about for so long
MOST_SERVERS = 16
Row = Dict[str, Any]


class Eyes:
    """One look at a time: `lock` is held for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rights, self.room, self.holders, self.kernel = Rights(), Room(), Holders(), KernelLog()
        self.table, self.ports = ProcessTable(), Ports()
        self.trees: Dict[Tuple[int, int], Set[int]] = {}
        """Of each server, the pids that the last look found."""
        self._processes: Dict[Tuple[int, int], ProcessEye] = {}

    def of(self, stat: procs.Stat) -> ProcessEye:
        """The eye on a process."""
        key = (stat.pid, stat.start)
        if key not in self._processes:
            self._processes[key] = ProcessEye(stat)
        return self._processes[key]

    def cheap(self, stats: Iterable[procs.Stat], threads: bool) -> List[Row]:
        """The cheap part of each."""
        uptime = procs.uptime_s()
        room = self.room if threads else None
        return [self.of(stat).look(stat, self.rights, uptime, room) for stat in stats]

    def forget(self) -> None:
        """Close the eyes on processes that nobody asks about any more."""
        now = time.monotonic()
        for key in [key for key, eye in self._processes.items() if now - eye.asked > FORGET_S]:
            self._processes.pop(key).close(self.room)
        while len(self.trees) > MOST_SERVERS:
            del self.trees[next(iter(self.trees))]
