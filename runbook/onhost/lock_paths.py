"""For which lock file a thread waits, by what the objects of its own frames hold.

Lock files lie about in every cache: that one of them is old says nothing of a wait for another.
"""

import functools
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Set

from . import careful
from .folders import LockFile, is_lock
from .objects import Memory

FRAME = re.compile(
    r"\(\S*(?:file_baton|filelock/\S+|lockfile\S*|portalocker/\S+)\.py|(?:^|[._])\w*(?:file_?lock|lock_?file)\w* \(", re.IGNORECASE
)
DEEP = 3  # frames from the innermost on in which such a wait shows
MOST_DEPTH = 2  # an object of the lock, what it holds, what that holds
MOST_OBJECTS = 400
MOST_KNOWN = 64
Row = Dict[str, Any]


class Awaited(NamedTuple):
    """`path` as the waiting process writes it; `kind`: the class of the object that waits, empty for a plain function."""

    path: str
    kind: str


_NOTHING = Awaited("", "")
_known: Dict[int, str] = {}


def asks(row: Row) -> bool:
    """Whether its innermost frames look for a lock file."""
    return any(FRAME.search(frame) for frame in row["frames"][:DEEP])


def of(pid: int, row: Row) -> Awaited:
    """The one lock file that the objects of these frames name; nothing where they name none, or several."""
    try:
        memory = Memory(pid)
    except (OSError, ValueError):
        return _NOTHING
    try:
        found = _read(pid, memory, [row["spots"][at][2] or {} for at, frame in enumerate(row["frames"][:DEEP]) if FRAME.search(frame)])
    except ValueError:
        return _NOTHING
    finally:
        memory.close()
    _known[pid] = found.path
    while len(_known) > MOST_KNOWN:
        del _known[next(iter(_known))]
    return found


def files(pids: Iterable[int]) -> List[LockFile]:
    """The lock files for which these were last found to wait, as far as they are there: in a folder that nobody watches, too."""
    found = []
    for path in {_known.get(pid, "") for pid in pids} - {""}:
        try:
            found.append(LockFile(path, careful.read(("lock file", path), functools.partial(os.stat, path)).st_mtime))
        except (OSError, careful.Stuck):
            continue  # it is gone, so nobody waits for it any more; or its file system does not answer
    return found


def _read(pid: int, memory: Memory, frames: List[Dict[str, int]]) -> Awaited:
    kinds = {memory.class_of(one["self"]) for one in frames if "self" in one}
    every = [at for one in frames for at in one.values()]
    texts = _texts(memory, [one["self"] for one in frames if "self" in one] or every, MOST_DEPTH) | _texts(memory, every, 0)
    paths = {path for text in texts if is_lock(os.path.basename(text)) for path in [_path(pid, text)] if path}
    return Awaited(paths.pop(), kinds.pop() if len(kinds) == 1 else "") if len(paths) == 1 and len(kinds) <= 1 else _NOTHING


def _texts(memory: Memory, objects: List[int], most: int) -> Set[str]:
    """Strings that these objects are, or hold, so many steps from them."""
    found, seen, layer = set(), set(objects), list(objects)
    for depth in range(most + 1):
        below: List[int] = []
        for at in layer:
            try:
                text = memory.text(at)
                if text is not None:
                    found.add(text)
                elif depth < most:
                    below += [one for one in memory.parts(at) if one not in seen]
            except ValueError:
                continue  # a number in a slot, or freed meanwhile
        layer = list(dict.fromkeys(below))[: MOST_OBJECTS - len(seen)]
        seen.update(layer)
    return found


def _path(pid: int, text: str) -> str:
    """Where that file is, if it is there and the same for the process as for us."""
    try:
        return str(careful.read(("lock file", pid, text), functools.partial(_same_file, pid, text)))
    except (OSError, ValueError, careful.Stuck):
        return ""


def _same_file(pid: int, text: str) -> str:
    path = os.path.join(os.readlink("/proc/%d/cwd" % pid), text)
    ours, theirs = os.stat(path), os.stat("/proc/%d/root%s" % (pid, path))
    return path if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino) and os.path.isfile(path) else ""
