"""Locks that processes of the tree wait for or hold: /proc/locks, whose inodes are named by the files that the tree has open."""

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Set

from . import procs
from .descriptors import Holders
from .open_files import Key

MOST_LOCKS = 50
_LINE = re.compile(r"^(\d+): (-> )?(\w+) +\w+ +\w+ (-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")
_KINDS = {"FLOCK": "flock", "POSIX": "posix", "OFDLCK": "posix"}


class Lock(NamedTuple):
    """One lock and who waits for it. `taken_by` took it; what it forked may hold it since. None for locks of an open file description."""

    kind: str
    taken_by: Optional[int]
    major: int
    minor: int
    inode: int
    waiters: List[int]


def parse(text: str) -> List[Lock]:
    """The table's file locks; leases and the rest are left out."""
    found: Dict[str, Lock] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match.group(3) not in _KINDS:
            continue
        number, waits, kind, pid = match.group(1), match.group(2), _KINDS[match.group(3)], int(match.group(4))
        if waits and number in found:
            found[number].waiters.append(pid)
        elif not waits:
            major, minor, inode = int(match.group(5), 16), int(match.group(6), 16), int(match.group(7))
            found[number] = Lock(kind, pid if pid > 0 else None, major, minor, inode, [])
    return list(found.values())


def read() -> Optional[List[Lock]]:
    """The kernel's table; None where it cannot be read."""
    raw = procs.read_bytes("/proc/locks", 4 << 20)
    return None if raw is None else parse(raw.decode("ascii", "replace"))


def rows(
    locks: List[Lock], tree: Set[int], paths: Dict[Key, str], table: Dict[int, procs.Stat], holders: Holders, known: bool
) -> List[Dict[str, Any]]:
    """Locks of the tree, those that somebody waits for first. `known`: whose descriptors could share a lock was read; an open file
    description that a process gets later it gets from its parent."""
    found = []
    for lock in locks:
        path = _path(lock, paths)
        if path is None or not tree & {*lock.waiters, lock.taken_by or 0, *holders.of(path)}:
            continue
        holder = _holder(lock, path, table, holders)
        if not lock.waiters and holder not in tree:
            continue
        found.append(
            {
                "path": path,
                "kind": lock.kind,
                "waiters": sorted(set(lock.waiters)),
                "holder": holder,
                "holder_known": holder is not None,
                "opened_by": sorted(holders.of(path)),
                "opened_known": known,
                "age_s": None,
            }
        )
    return sorted(found, key=lambda row: (not row["waiters"], row["path"]))[:MOST_LOCKS]


def _path(lock: Lock, paths: Dict[Key, str]) -> Optional[str]:
    """By device and inode; by inode alone where stat shows another device than the lock table does (btrfs, overlayfs)."""
    path = paths.get((os.makedev(lock.major, lock.minor), lock.inode))
    if path is not None:
        return path
    same = {path for (_, inode), path in paths.items() if inode == lock.inode}
    return same.pop() if len(same) == 1 else None


def _holder(lock: Lock, path: str, table: Dict[int, procs.Stat], holders: Holders) -> Optional[int]:
    """Who took it while he lives and, for a flock, still has it; else whoever has it by inheritance, which the kernel shows beside the
    descriptor: a flock lives on with its open file description, whoever took it."""
    stat = table.get(lock.taken_by or 0)
    if stat is not None and stat.state not in "ZX" and (lock.kind != "flock" or _has_lock(stat.pid, path)):
        return stat.pid
    return next((pid for pid in sorted(holders.of(path)) if pid not in lock.waiters and _has_lock(pid, path)), None)


def _has_lock(pid: int, path: str) -> bool:
    for fd, target in procs.open_files(pid):
        if target == path and b"\nlock:" in (procs.read_bytes("/proc/%d/fdinfo/%d" % (pid, fd)) or b""):
            return True
    return False
