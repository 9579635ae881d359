"""Memory that processes share, so that another one may set the flag at which a thread looks: /proc/PID/maps, on suspicion only."""

import os
import re
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import careful, procs
from .rights import read_file

MOST_MAPS = 16 << 20
MOST_ROWS = 50  # of one process; of more nothing is said, since a part would look like all
_SHARED = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ r[w-][x-]s [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) *(.*)$", re.MULTILINE)
_SYSTEM = ("/usr/", "/lib/", "/lib64/")
_NAMELESS = re.compile(r"^/dev/zero \(deleted\)$|^/SYSV[0-9a-f]+ \(deleted\)$")
Key = Tuple[bytes, bytes]


def read(stats: Iterable[procs.Stat], table: Dict[int, procs.Stat]) -> Dict[int, Optional[List[Dict[str, Any]]]]:
    """Of each of these processes what it shares, None where its maps cannot be read."""
    stacks = {stat.pid: stat.stack for stat in stats}
    mapped = {pid: _of(pid) for pid in stacks}
    nameless = {key for rows in mapped.values() for key, name in (rows or {}).items() if _NAMELESS.match(name)}
    sharers, complete = _sharers(nameless, set(stacks.values()), mapped, table) if nameless else ({}, True)
    return {pid: None if rows is None or len(rows) > MOST_ROWS else _rows(pid, rows, sharers, complete) for pid, rows in mapped.items()}


def _rows(pid: int, mapped: Dict[Key, str], sharers: Dict[Key, Set[int]], complete: bool) -> List[Dict[str, Any]]:
    """Memory without a name is shared by inheritance alone; whatever has one may be opened by anybody, later too."""
    rows = []
    for key, name in sorted(mapped.items(), key=lambda one: one[1]):
        nameless = bool(_NAMELESS.match(name)) and not name.startswith("/SYSV")
        rows.append({"name": name, "pids": sorted(sharers.get(key, set()) - {pid}), "known": nameless and complete})
    return rows


def _of(pid: int) -> Optional[Dict[Key, str]]:
    """Its shared mappings by device and inode, but for files of the system."""
    try:
        raw = careful.read(("shared", pid), lambda: read_file("/proc/%d/maps" % pid, MOST_MAPS))
    except (OSError, careful.Stuck):
        return None
    found = {(one.group(1), one.group(2)): one.group(3).decode("utf-8", "replace") for one in _SHARED.finditer(raw)}
    return {key: name for key, name in found.items() if not _is_system(name)}


def _is_system(name: str) -> bool:
    """A file that only root writes, as the C library's caches."""
    if not name.startswith(_SYSTEM):
        return False
    try:
        info = os.stat(name)
    except OSError:
        return False
    return info.st_uid == 0 and not info.st_mode & 0o022


def _sharers(
    keys: Set[Key], stacks: Set[int], known: Dict[int, Optional[Dict[Key, str]]], table: Dict[int, procs.Stat]
) -> Tuple[Dict[Key, Set[int]], bool]:
    """Who has these mapped, and whether all that could have were asked: memory without a name is inherited by a fork and lost at an exec,
    so only processes whose stacks begin at the same place can. Init is often hidden even from root; it shares nothing."""
    found: Dict[Key, Set[int]] = {}
    complete = procs.shows_everyone()
    for stat in table.values():
        if stat.state in "ZX" or stat.pid in (1, os.getpid()) or procs.is_kernel_thread(stat):
            continue
        forked = stat.stack in stacks
        mapped = known[stat.pid] if stat.pid in known else _of(stat.pid) if forked else None
        asked = mapped is not None or (not forked and stat.stack != 0)
        complete = complete and (asked or procs.same(stat.pid, stat.start) is None)
        for key in keys & set(mapped or {}):
            found.setdefault(key, set()).add(stat.pid)
    return found, complete
