"""Did the kernel's out-of-memory killer end a process? Asked before and after; each source may be unreadable (None).

kernel log       names the victim's pid, so it is exact; often root's alone
memory cgroup    its oom_kill counter (v2 memory.events, v1 memory.oom_control)
host             oom_kill of /proc/vmstat, all cgroups together: only with a SIGKILL that nobody of ours sent
"""

import os
import re
import time
from typing import NamedTuple, Optional, Set

from . import procs

_VICTIM = re.compile(rb"Killed process (\d+)")
_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
MOST_KMSG = 50_000  # records; the ring of a busy host holds fewer
SLACK_S = 60.0  # the log's clock drifts from the boot clock; pids are not reused that fast
EXIT_S = 10.0  # from the kernel's choice of a process to its end, while gigabytes are given back
NOTICE_S = 600.0  # the longest default by which a server notices that a rank is gone: torch's limit on a collective
A_CHILD = "memory cgroup, a child"


class Look(NamedTuple):
    """What the counters said: the process's memory cgroup, its kills, the host's kills."""

    cgroup: str
    kills: Optional[int]
    host: Optional[int]


def counter(text: str) -> Optional[int]:
    """The oom_kill line of memory.events, memory.oom_control or /proc/vmstat."""
    found = _COUNTER.search(text)
    return int(found.group(1)) if found else None


def memory_cgroup(text: str) -> Optional[str]:
    """Counter file of the memory cgroup that a /proc/PID/cgroup text names: the v1 controller if mounted, else the v2 tree."""
    unified = None
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory%s/memory.oom_control" % path.rstrip("/")
        if hierarchy == "0" and not controllers:
            unified = "/sys/fs/cgroup%s/memory.events" % path.rstrip("/")
    return unified


def look(pid: int) -> Look:
    """Counters for a live process."""
    path = memory_cgroup(_text("/proc/%d/cgroup" % pid) or "") or ""
    return Look(path, counter(_text(path) or "") if path else None, counter(_text("/proc/vmstat") or ""))


def again(before: Look) -> Look:
    """The same counters once the process is gone and its cgroup cannot be asked from it any more."""
    return Look(before.cgroup, counter(_text(before.cgroup) or "") if before.cgroup else None, counter(_text("/proc/vmstat") or ""))


class Children:
    """Whether a process below the main one went just after its memory cgroup counted a kill. Times in seconds of one clock.

    A cgroup may be shared, so a kill alone says nothing about this launch: a process of it must be gone within EXIT_S.
    """

    def __init__(self, first: Look) -> None:
        self._last, self._rose_at, self._taken_at = first, float("-inf"), float("-inf")

    def note(self, counters: Look, lost: bool, t: float) -> None:
        """One look; `lost` when a process that was there before is gone."""
        if counters.cgroup == self._last.cgroup and _rose(self._last.kills, counters.kills):
            self._rose_at = t
        if lost and t - self._rose_at < EXIT_S:
            self._taken_at = t
        self._last = counters

    def taken(self, t: float) -> bool:
        """One was, not longer ago than a server takes to notice."""
        return t - self._taken_at < NOTICE_S


def source(signal: Optional[str], by_us: bool, before: Look, after: Look, victims: Set[int], pids: Set[int], child: bool = False) -> str:
    """Which source says that the killer ended it, or a child whose death ended it; empty when none does.

    `pids` are the launch's, `victims` the kernel log's, `child` what `Children` found.
    """
    if victims & pids:
        return "kernel log"
    if by_us:
        return ""
    if signal != "SIGKILL":
        return A_CHILD if child else ""
    if _rose(before.kills, after.kills):
        return "memory cgroup"
    return "host counter" if _rose(before.host, after.host) else ""


def _rose(before: Optional[int], after: Optional[int]) -> bool:
    return before is not None and after is not None and after > before


def victims(since_monotonic: float, path: str = "/dev/kmsg", limit_s: float = 0.3) -> Set[int]:
    """pids that the kernel log says were killed since then (boot clock, seconds). Empty when it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return set()
    found: Set[int] = set()
    deadline = time.monotonic() + limit_s
    try:
        for _ in range(MOST_KMSG):
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:  # overwritten while we read: the next read goes on behind the gap
                continue
            except OSError:  # EAGAIN: that was the last
                break
            found |= victims_of(record, since_monotonic)
            if not record or time.monotonic() > deadline:
                break
    finally:
        os.close(fd)
    return found


def victims_of(record: bytes, since_monotonic: float) -> Set[int]:
    """Victims in one record, `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`."""
    head, _, text = record.partition(b";")
    fields = head.split(b",")
    found = _VICTIM.search(text)
    if found is None or len(fields) < 3 or not fields[2].isdigit() or int(fields[2]) / 1e6 < since_monotonic - SLACK_S:
        return set()
    return {int(found.group(1))}


def _text(path: str) -> Optional[str]:
    raw = procs.read_bytes(path)
    return None if raw is None else raw.decode("ascii", "replace")
