"""Which bytes of which files are a window of a log that may have been rotated inside it.

A log is named by path, a place in it by (inode, size). Rotation by renaming leaves the inode beside the path under a longer
name (`FILE.1`); rotation by copying and truncating leaves the inode and takes the bytes.
"""

import glob
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import procs

_ROTATED = re.compile(r"[.-](\d[\dTZ._:-]*|old)")
"""What a rotation appends: `.1`, `-20250131`, `.2025-01-31_10:00`, `.old`."""


class Segment(NamedTuple):
    """Bytes `begin` to `end` of one file."""

    path: str
    inode: int
    begin: int
    end: int


class Window(NamedTuple):
    """Segments, oldest first; `gap` says which part cannot be read, empty when all can."""

    segments: List[Segment]
    gap: str


class _File(NamedTuple):
    path: str
    inode: int
    size: int
    changed: float


def find_window(path: str, begin: Optional[Sequence[int]], end: Optional[Sequence[int]]) -> Window:
    """The window from mark `begin` (none: the file's start) to mark `end` (none: now)."""
    family = _family(path)
    gaps: List[str] = []
    first, offset = _first(family, path, begin, gaps)
    chain = family[first:]
    chain, last_end = _cut(chain, end, gaps)
    segments = []
    for number, log in enumerate(chain):
        start = offset if number == 0 else 0
        stop = last_end if number == len(chain) - 1 and last_end is not None else log.size
        if stop > log.size:
            gaps.append("%s was cut from %d to %d bytes inside the window" % (log.path, stop, log.size))
            stop = log.size
        if stop < start:
            gaps.append("%s was cut and written again inside the window" % log.path)
            start = 0
        segments.append(Segment(log.path, log.inode, start, stop))
    return Window(segments, "; ".join(gaps))


def _family(path: str) -> List[_File]:
    """The log and its renamed predecessors, oldest first, itself last (absent when there is no file of that name)."""
    found: Dict[int, _File] = {}
    siblings = [name for name in glob.glob(glob.escape(path) + "[.-]*") if _ROTATED.fullmatch(name[len(path) :])]
    for name in [path, *siblings]:
        try:
            info = os.stat(name)
        except OSError:
            continue
        found.setdefault(info.st_ino, _File(name, info.st_ino, info.st_size, info.st_mtime))
    return sorted(found.values(), key=lambda log: (log.path == path, log.changed))


def _first(family: List[_File], path: str, begin: Optional[Sequence[int]], gaps: List[str]) -> Tuple[int, int]:
    """(index of the window's first file, offset in it)."""
    current = next((at for at, log in enumerate(family) if log.path == path), len(family))
    if begin is None or begin[0] == 0:
        return current, 0
    inode, size = begin
    at = next((at for at, log in enumerate(family) if log.inode == inode), None)
    if at is None:
        gaps.append("the file that the window begins in (inode %d) is gone: rotated away" % inode)
        return current, 0
    if family[at].size < size:
        gaps.append("%s was cut from %d to %d bytes after the window began" % (family[at].path, size, family[at].size))
        return at, 0
    return at, size


def _cut(chain: List[_File], end: Optional[Sequence[int]], gaps: List[str]) -> Tuple[List[_File], Optional[int]]:
    """The files up to the one that the window ends in, and where in that."""
    if end is None:
        return chain, None
    inode, size = end
    if inode == 0:
        return [], None
    at = next((at for at, log in enumerate(chain) if log.inode == inode), None)
    if at is None:
        gaps.append("the file that the window ends in (inode %d) is gone: rotated away" % inode)
        return chain, None
    return chain[: at + 1], size


def writers(segments: Sequence[Segment], table: Dict[int, procs.Stat]) -> List[int]:
    """pids that hold one of these files open for writing."""
    inodes = {segment.inode for segment in segments}
    names = {os.path.basename(segment.path) for segment in segments}
    found = set()
    for pid in table:
        for fd, target in procs.open_files(pid):
            if os.path.basename(target) in names and _writes(pid, fd, inodes):
                found.add(pid)
    return sorted(found)


def _writes(pid: int, fd: int, inodes: Set[int]) -> bool:
    try:
        if os.stat("/proc/%d/fd/%d" % (pid, fd)).st_ino not in inodes:
            return False
    except OSError:
        return False
    info = procs.read_bytes("/proc/%d/fdinfo/%d" % (pid, fd), 4096) or b""
    at = info.find(b"flags:")
    return at >= 0 and int(info[at + 6 :].split(None, 1)[0], 8) & os.O_ACCMODE != os.O_RDONLY
