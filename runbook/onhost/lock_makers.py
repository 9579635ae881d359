"""Who made a lock file, as far as it tells: the pid and host in it; and whether makers could be where nobody here sees them."""

import os
import re
from typing import Any, Dict, Optional, Tuple

from . import careful, procs
from .rights import read_file

MOST_BYTES = 256
_LOCAL = frozenset("ext2 ext3 ext4 xfs btrfs f2fs tmpfs zfs overlay".split())
_INIT_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, linux/proc_ns.h
_ESCAPED = re.compile(r"\\([0-7]{3})")


def row_of(path: str) -> Dict[str, Any]:
    """{maker, maker_gone, elsewhere} of one lock file."""
    try:
        maker, elsewhere = careful.read(("maker", path), lambda: (_pid_in(path), _reaches_further(path)))
    except (OSError, careful.Stuck):
        return {"maker": None, "maker_gone": False, "elsewhere": None}
    return {"maker": maker, "maker_gone": maker is not None and _is_gone(maker), "elsewhere": elsewhere}


def _is_gone(maker: int) -> bool:
    return procs.shows_everyone() and procs.read_stat(maker) is None


def _pid_in(path: str) -> Optional[int]:
    """The number in its first line, above the name of this host, as filelock writes them. A number alone may be that of a job, or of
    another host."""
    first, host = [line.strip() for line in (read_file(path, MOST_BYTES) + b"\n").split(b"\n")[:2]]
    ours = host == os.uname().nodename.encode()
    return int(first) if ours and first.isdigit() and 0 < int(first) < 1 << 22 else None


def _reaches_further(path: str) -> bool:
    """Whether processes that are not seen here may use it: on a network's file system, or from outside of this container.

    Inside of a container its own layers are nobody else's; what is mounted into it may be another one's as well.
    """
    kind, at_root = _mount_of(path)
    whole_host = procs.read_link("/proc/self/ns/pid") == _INIT_PID_NAMESPACE
    return kind not in _LOCAL or not (whole_host or (at_root and kind == "overlay"))


def _mount_of(path: str) -> Tuple[str, bool]:
    """(type of its file system, whether that is the root's). Raises OSError."""
    device, best, kind = os.stat(path).st_dev, "", ""
    real = os.path.realpath(path)
    for line in read_file("/proc/self/mountinfo", 4 << 20).decode("utf-8", "replace").splitlines():
        fields = line.split()
        place = _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), fields[4])
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, fields[fields.index("-") + 1]
    return kind, best == "/" and os.stat("/").st_dev == device
