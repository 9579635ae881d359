"""Lines of the kernel's log that explain a server's end or standstill. Read as it grows; its reader never waits."""

import os
import re
from collections import deque
from typing import Any, Deque, Dict, NamedTuple, Optional

from . import procs
from .sources import absent, blind, seen

PATH = "/dev/kmsg"
MOST_LINES = 50
MOST_TEXT = 300
MOST_RECORDS = 20000  # of one look
_TELLING = re.compile(
    r"NVRM|Xid|blocked for more than|hung_task|soft lockup|hard LOCKUP|Out of memory|oom-kill|Killed process|segfault|general protection"
    r"|I/O error|not responding|server \S+ OK|Hardware Error|uncorrect|fallen off the bus"
)


class Record(NamedTuple):
    """Seconds since boot and the line."""

    at: float
    text: str


class KernelLog:
    """Open for as long as the helper lives, so that each look reads only what is new."""

    def __init__(self, path: str = PATH) -> None:
        self.path = path
        self._fd: Optional[int] = None
        self._lines: Deque[Record] = deque(maxlen=1000)

    def since(self, ticks: int) -> Dict[str, Any]:
        """Seen lines since that start (clock ticks since boot); Absent when there is none."""
        try:
            self._read()
        except PermissionError:
            return blind("not permitted: the kernel log needs root here (sysctl kernel.dmesg_restrict)")
        except OSError as problem:
            return blind("%s: %s" % (self.path, problem.strerror))
        begin = ticks / procs.TICKS_PER_S - 1.0
        lines = [line.text for line in self._lines if line.at >= begin]
        return seen(lines[-MOST_LINES:]) if lines else absent("no such line since it started")

    def _read(self) -> None:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for _ in range(MOST_RECORDS):
            try:
                raw = os.read(self._fd, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # overwritten before we read it; the next read goes on with the oldest that is left
            if not raw:
                return
            record = parse(raw)
            if record is not None:
                self._lines.append(record)


def parse(raw: bytes) -> Optional[Record]:
    """`prio,seq,microseconds,flags;text`, then lines of details; None for one that tells us nothing."""
    head, _, text = raw.partition(b";")
    line = text.split(b"\n", 1)[0].decode("utf-8", "replace")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[2].isdigit() or not _TELLING.search(line):
        return None
    return Record(int(fields[2]) / 1e6, line[:MOST_TEXT])
