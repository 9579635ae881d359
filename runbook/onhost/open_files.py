"""Open regular files of a process: how far each was read or written, and how large it is."""

import os
import stat as modes
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import careful, procs
from .descriptors import Descriptor, position
from .sources import blind, seen

MOST_FILES = 64
_NOT_DATA = ("/dev/", "/proc/", "/sys/")
_OUTPUT = (1, 2)  # stdout and stderr: their growth is the log's

Key = Tuple[int, int]
"""(device, inode): which file it is."""


class Opened:
    """A process's descriptors of regular files and folders, asked for once."""

    def __init__(self, pid: int, found: Sequence[Descriptor]) -> None:
        self.pid = pid
        named = [one for one in found if one.name.startswith("/") and not one.name.startswith(_NOT_DATA)]
        self.infos: Dict[int, os.stat_result] = careful.read(("stat", pid), lambda: _stat_all(pid, named))
        self.named = [one for one in named if one.fd in self.infos]

    def regular(self) -> List[Descriptor]:
        """Those of regular files."""
        return [one for one in self.named if modes.S_ISREG(self.infos[one.fd].st_mode)]

    def folders(self) -> List[str]:
        """Paths of open folders."""
        return [one.name for one in self.named if modes.S_ISDIR(self.infos[one.fd].st_mode)]

    def fifos(self) -> List[Descriptor]:
        """Those of named pipes."""
        return [one for one in self.named if modes.S_ISFIFO(self.infos[one.fd].st_mode)]

    def keys(self) -> Dict[Key, str]:
        """Which files they are."""
        return {(self.infos[one.fd].st_dev, self.infos[one.fd].st_ino): one.name for one in self.regular()}


def look(stat: procs.Stat, opened: Opened, log: Optional[Key]) -> Dict[str, Any]:
    """Seen files of the process, the log and its output left out; at most MOST_FILES, those that are read first."""
    output = {_key(opened, one) for one in opened.regular() if one.fd in _OUTPUT} | {log}
    rows: List[Dict[str, Any]] = []
    for one in sorted(opened.regular(), key=lambda one: (one.writes, one.fd)):
        if _key(opened, one) in output or len(rows) >= MOST_FILES:
            continue
        offset = position(stat.pid, one.fd)
        if offset is not None:
            rows.append({"path": one.name, "offset": offset, "size": opened.infos[one.fd].st_size, "writing": one.writes})
    return seen(rows)


def hidden(problem: careful.Stuck) -> Dict[str, Any]:
    """Its files could not be asked for their size."""
    return blind("sizes of its open files: %s; a file system does not answer" % problem)


def _stat_all(pid: int, named: Sequence[Descriptor]) -> Dict[int, os.stat_result]:
    infos = {}
    for one in named:
        try:
            infos[one.fd] = os.stat("/proc/%d/fd/%d" % (pid, one.fd))
        except OSError:
            continue  # closed while we looked, or gone with its file system
    return infos


def _key(opened: Opened, one: Descriptor) -> Key:
    return opened.infos[one.fd].st_dev, opened.infos[one.fd].st_ino
