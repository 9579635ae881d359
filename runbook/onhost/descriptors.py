"""The open descriptors of processes: what each is, and who else holds the same pipe, socket or file.

Nothing here opens or asks the file behind a descriptor; a link of /proc/PID/fd is read, not followed.
"""

import errno
import os
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from . import procs
from .rights import Rights, read_file

MOST_DESCRIPTORS = 4096  # of one process
WORLD_S = 0.5  # to look for holders among all other processes
REST = 200  # and so many times as long as that took, no such look is made again
READS, WRITES = 1, 2
_BOTH_WAYS = ("socket:[", "anon_inode:")
_KINDS = {"pipe:[": "pipe", "socket:[": "socket", "/dev/null": "null", "/dev/pts/": "tty", "/dev/tty": "tty", "/dev/console": "tty"}


class Descriptor(NamedTuple):
    """`name` is where the link points: a path, pipe:[inode], socket:[inode], anon_inode:…; `mode` is READS | WRITES."""

    fd: int
    name: str
    mode: int

    @property
    def writes(self) -> bool:
        """Whether it is open for writing."""
        return bool(self.mode & WRITES)


def descriptors(pid: int) -> List[Descriptor]:
    """Of one process. Raises OSError, also when it has more than MOST_DESCRIPTORS: a part of them would look like all."""
    folder = "/proc/%d/fd/" % pid
    found = []
    names = os.listdir(folder)
    if len(names) > MOST_DESCRIPTORS:
        raise OSError(errno.E2BIG, "it has more than %d descriptors open" % MOST_DESCRIPTORS)
    for name in names:
        try:
            target = os.readlink(folder + name)
            mode = 0o600 if target.startswith(_BOTH_WAYS) else os.lstat(folder + name).st_mode
        except FileNotFoundError:
            continue  # closed while we looked
        found.append(Descriptor(int(name), target, (READS if mode & 0o400 else 0) | (WRITES if mode & 0o200 else 0)))
    return sorted(found)


def stdin_kind(found: List[Descriptor]) -> str:
    """What descriptor 0 is, in the words of `ProcessSample.stdin`."""
    first = next((one.name for one in found if one.fd == 0), None)
    if first is None:
        return "closed"
    return next((kind for start, kind in _KINDS.items() if first.startswith(start)), "file")


def position(pid: int, fd: int) -> Optional[int]:
    """A descriptor's offset in bytes; None when it is gone or not ours to read."""
    try:
        raw = read_file("/proc/%d/fdinfo/%d" % (pid, fd), 4096)
    except OSError:
        return None
    return int(raw.split(None, 2)[1]) if raw.startswith(b"pos:") else None


class Holders:
    """Which processes hold a pipe, a socket or a file. The tree's are taken at each look; all others are read when they are asked for.

    A look at all others rests between two times, in proportion to the CPU time that it costs on this host: 0.5 % of a core at most. What
    it waits for a core is no cost: on a busy host it would rest for minutes.
    """

    def __init__(self) -> None:
        self._held: Dict[int, Tuple[int, bool, Dict[str, int]]] = {}
        self._by_name: Dict[str, Dict[int, int]] = {}
        self._looked, self._cost = float("-inf"), 0.0

    def take(self, stat: procs.Stat, found: List[Descriptor], readable: bool = True) -> None:
        """What was read of a process."""
        modes: Dict[str, int] = {}
        for one in found:
            if not one.name.startswith("anon_inode:"):
                modes[one.name] = modes.get(one.name, 0) | one.mode
        self._drop(stat.pid)
        self._held[stat.pid] = (stat.start, readable, modes)
        for name, mode in modes.items():
            self._by_name.setdefault(name, {})[stat.pid] = mode

    def of(self, name: str, mode: int = READS | WRITES) -> Set[int]:
        """pids known to hold it in that way, as far as was looked."""
        return {pid for pid, has in self._by_name.get(name, {}).items() if has & mode}

    def search(self, names: Iterable[str], table: Dict[int, procs.Stat], tree: Set[int], rights: Rights) -> bool:
        """Bring what is known of these up to date outside the tree. Whether all processes of the table were looked at just now."""
        for pid in [pid for pid, (start, _, _) in self._held.items() if pid not in table or table[pid].start != start]:
            self._drop(pid)
        begin, worked = time.monotonic(), time.thread_time()
        everyone = begin - self._looked > REST * self._cost
        suspects = {pid for name in names for pid in self._by_name.get(name, ())}
        complete = everyone and procs.shows_everyone()
        for pid in set(table) - tree - {os.getpid()}:
            if time.monotonic() - begin > WORLD_S:
                complete = False
                break
            if everyone or pid in suspects or pid not in self._held:
                self._read(table[pid], rights)
            complete = complete and self._is_known(table[pid])
        if everyone:
            self._looked, self._cost = time.monotonic(), time.thread_time() - worked
        return complete and all(self._is_known(table[pid]) for pid in tree)

    def knows(self, table: Dict[int, procs.Stat]) -> bool:
        """Whether the descriptors of all these were read since they are there: an end that a process gets later it gets from its parent."""
        return procs.shows_everyone() and all(pid == os.getpid() or self._is_known(stat) for pid, stat in table.items())

    def _is_known(self, stat: procs.Stat) -> bool:
        """Whether all that it holds was read. Init is often hidden even from root; it is nobody that a server waits for."""
        return stat.pid == 1 or stat.state in "ZX" or self._held.get(stat.pid, (0, False, {}))[1]

    def _read(self, stat: procs.Stat, rights: Rights) -> None:
        try:
            readable = rights.refusal(stat, "fd") is None
            self.take(stat, descriptors(stat.pid) if readable else [], readable)
        except OSError as problem:
            rights.explain(stat, "fd", problem)
            self.take(stat, [], procs.same(stat.pid, stat.start) is None)  # the dead hold nothing

    def _drop(self, pid: int) -> None:
        for name in self._held.pop(pid, (0, False, {}))[2]:
            holders = self._by_name[name]
            del holders[pid]
            if not holders:
                del self._by_name[name]
