"""What a log gained since the sample before: whole lines, few and short, whatever was written.

A last line without its end is given once the log has stood still for a while: a question (`Proceed? [y/N] `) never gets one.
"""

import os
import stat as modes
import time
from collections import deque
from itertools import islice
from typing import Any, Deque, Dict, List, Optional, Tuple

from . import careful
from .sources import absent, blind, seen

MOST_READ = 16 << 20  # of one sample; the next goes on there
MOST_LINES = 200
MOST_LINE = 2000
MOST_SIBLINGS = 2000
STILL_S = 3.0  # a line is written in one go, or in parts that follow at once
LIMIT_S = 5.0  # a disk may be slow; a file server that is gone never answers


class _Lines:
    """The first and the last lines, and how many are left out between them."""

    def __init__(self) -> None:
        self._head: List[str] = []
        self._tail: Deque[str] = deque(maxlen=MOST_LINES // 2)
        self._count = 0

    def take(self, data: bytes) -> None:
        """Bytes that end with a line's end, or with the end of a file that is over."""
        for line in data.replace(b"\0", b"").replace(b"\r", b"\n").split(b"\n"):  # a log cut under its writer begins with a hole
            if not line:
                continue
            text = line[: 4 * MOST_LINE].decode("utf-8", "backslashreplace")[:MOST_LINE]
            if len(self._head) < MOST_LINES // 2:
                self._head.append(text)
            else:
                self._tail.append(text)
            self._count += 1

    def result(self) -> Tuple[List[str], int]:
        """(lines, how many were skipped)."""
        kept = self._head + list(self._tail)
        return kept, self._count - len(kept)


def gain(log: Dict[str, Any]) -> Dict[str, Any]:
    """Seen lines of {path, inode, offset} (inode 0 or none: whatever file is there); Absent when there is no log."""
    path = log["path"]
    try:
        return careful.read(("log", path), lambda: _gain(path, int(log.get("inode") or 0), int(log.get("offset") or 0)), LIMIT_S)
    except FileNotFoundError:
        return absent("there is no log %s" % path)
    except OSError as error:
        return blind("log %s: %s" % (path, error.strerror))
    except careful.Stuck as problem:
        return blind("log %s: %s; its file system does not answer" % (path, problem))


def _gain(path: str, inode: int, offset: int) -> Dict[str, Any]:
    lines = _Lines()
    now = os.stat(path)
    if not modes.S_ISREG(now.st_mode):
        return blind("log %s: not a regular file" % path)
    rotated = bool(inode) and now.st_ino != inode
    if rotated:
        lines.take(_rest_of_old(path, inode, offset))
    cut = not rotated and now.st_size < offset
    begin = 0 if rotated or cut else offset
    data = _read(path, begin, MOST_READ)
    still = time.time() - now.st_mtime > STILL_S and begin + len(data) == now.st_size
    whole = len(data) if still else _whole(data)
    lines.take(data[:whole])
    kept, skipped = lines.result()
    return seen(
        {
            "path": path,
            "inode": now.st_ino,
            "size": now.st_size,
            "offset": begin,
            "end": begin + whole,
            "lines": kept,
            "skipped": skipped,
            "rotated": rotated or cut,
        }
    )


def _whole(data: bytes) -> int:
    """How many bytes are whole lines; a line that fills the whole read is cut, or it would be waited for without end."""
    ends = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return len(data) if ends == 0 and len(data) == MOST_READ else ends


def _read(path: str, begin: int, most: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    parts = []
    try:
        while most > 0:
            part = os.pread(fd, min(most, 1 << 20), begin)
            if not part:
                break
            parts.append(part)
            begin += len(part)
            most -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def _rest_of_old(path: str, inode: int, offset: int) -> bytes:
    """What the rotated file still gained after the last sample; empty when it is nowhere beside its old name."""
    old = _named(os.path.dirname(path) or ".", os.path.basename(path), inode)
    return _read(old, offset, MOST_READ) if old is not None else b""


def _named(folder: str, name: str, inode: int) -> Optional[str]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_SIBLINGS):
            if entry.inode() == inode and entry.name.startswith(name.split(".")[0]):
                return entry.path
    return None
