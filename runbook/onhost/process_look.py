"""One process as a sample sees it. Files of /proc only; what is not ours to read is blind.

cheap: state, bytes read and written, page faults, threads      full: also title, mapped weights, memory, files, pipes
"""

import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import careful, open_files, pipes, procs
from .descriptors import Descriptor, Holders, descriptors, stdin_kind
from .mapped import Weights
from .open_files import Key, Opened
from .rights import Rights, owner, read_file
from .sources import absent, seen
from .thread_look import Room, Threads

MOST_TITLE = 500
_RANK = re.compile(r"(?:^|_|:|\b)TP(\d+)(?:_|\b)")
_OTHER_AXIS = re.compile(r"_(?:PP|DP)[1-9]\d*(?:_|\b)")
_STATUS = re.compile(rb"^(VmSize|VmLck|RssFile|RssShmem):\s+(\d+) kB", re.MULTILINE)


class Held(NamedTuple):
    """What one process has open: its pipe ends, its files by device and inode, folders it stands in or has open."""

    pipes: List[pipes.End]
    files: Dict[Key, str]
    folders: List[str]


NOTHING = Held([], {}, [])


class ProcessEye:
    """One process, look after look: what does not change is read once."""

    def __init__(self, stat: procs.Stat) -> None:
        self.pid, self.start = stat.pid, stat.start
        self.asked = time.monotonic()
        self._comm: Optional[str] = None
        self._raw: Optional[bytes] = None
        self._rank: Optional[str] = None
        self._world: Optional[str] = None
        self._threads = Threads(stat.pid)
        self._weights = Weights(stat.pid)

    def look(self, stat: procs.Stat, rights: Rights, uptime: float, room: Optional[Room]) -> Dict[str, Any]:
        """The cheap part. Threads only with `room`, where their descriptors are counted."""
        self.asked = time.monotonic()
        if self._comm != stat.comm:
            self._name(stat)
        title = procs.title_of(stat.comm, self._raw)[:MOST_TITLE]
        return {
            "pid": stat.pid,
            "start": stat.start,
            "ppid": stat.ppid,
            "state": stat.state,
            "title": title,
            "rss": stat.rss,
            "threads": self._threads.look(room, stat.threads) if room is not None else [],
            "rank": rank_of(title, self._rank),
            "world": _number(self._world),
            "io": io_of(stat, rights),
            "faults": stat.faults,
            "age_s": round(procs.age_s(stat, uptime), 1),
            "exit_code": exit_code(stat),
        }

    def full(self, stat: procs.Stat, rights: Rights, holders: Holders, log: Optional[Key]) -> Tuple[Dict[str, Any], Held]:
        """The rest of its fields, but for `pipes` where its ends are in the answer's second half."""
        memory = memory_of(stat)
        found: Dict[str, Any] = {"mapped_weights": self._weigh(stat, rights, memory)}
        found.update(locked=memory.get("VmLck"), shared=memory.get("RssShmem"))
        problem = rights.refusal(stat, "fd")
        if problem is None:
            try:
                opened = descriptors(stat.pid)
                holders.take(stat, opened)
                return self._open(stat, opened, log, found)
            except OSError as error:
                problem = rights.explain(stat, "fd", error)
        holders.take(stat, [], stat.state in "ZX")
        return dict(found, files=problem, pipes=problem), NOTHING

    def _open(self, stat: procs.Stat, opened: List[Descriptor], log: Optional[Key], found: Dict[str, Any]) -> Tuple[Dict[str, Any], Held]:
        if stat.state in "ZX":
            return dict(found, files=absent("a zombie has none"), pipes=absent("a zombie has none")), NOTHING
        found["stdin"] = stdin_kind(opened)
        cwd = procs.read_link("/proc/%d/cwd" % stat.pid)
        try:
            named = Opened(stat.pid, opened)
        except careful.Stuck as problem:
            return dict(found, files=open_files.hidden(problem)), Held(pipes.ends(stat.pid, opened, []), {}, [])
        found["files"] = open_files.look(stat, named, log)
        if any(one.fd == 0 for one in named.fifos()):
            found["stdin"] = "pipe"
        return found, Held(pipes.ends(stat.pid, opened, named.fifos()), named.keys(), named.folders() + ([cwd] if cwd else []))

    def _name(self, stat: procs.Stat) -> None:
        """Arguments and rank; another thread of the process may hold the lock that reading them needs."""
        try:
            self._raw, self._rank, self._world = careful.read(("name", stat.pid), lambda: _named(stat.pid))
        except careful.Stuck:
            pass  # what was read before still names it; else its comm does
        self._comm = stat.comm

    def _weigh(self, stat: procs.Stat, rights: Rights, memory: Dict[str, int]) -> Dict[str, Any]:
        """Mapped weights, and its title once more."""
        problem = rights.refusal(stat, "maps")
        if problem is not None or stat.state in "ZX":
            return problem or absent("a zombie has none")
        state = stat.faults, memory.get("VmSize", 0), memory.get("RssFile", 0)
        try:
            self._raw, found = careful.read(("maps", stat.pid), lambda: (procs.cmdline(stat.pid), self._weights.read(*state)))
            return found
        except (OSError, careful.Stuck) as error:
            return rights.explain(stat, "maps", error)

    def close(self, room: Room) -> None:
        """Give the descriptors of its threads back."""
        self._threads.close(room)


def rank_of(title: str, variable: Optional[str]) -> Optional[int]:
    """Rank from a title such as `sglang::scheduler_TP1`, else from RANK; none where another parallel axis makes TP ambiguous."""
    found = _RANK.search(title)
    if found is not None:
        return None if _OTHER_AXIS.search(title) else int(found.group(1))
    return _number(variable)


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.isdigit() else None


def _named(pid: int) -> Tuple[Optional[bytes], Optional[str], Optional[str]]:
    return procs.cmdline(pid), procs.environ_value(pid, "RANK"), procs.environ_value(pid, "WORLD_SIZE")


def exit_code(stat: procs.Stat) -> Optional[int]:
    """Of a zombie whose status is ours to read: what it exited with, or minus the signal that ended it."""
    readable = stat.exit_status != 0 or os.geteuid() in (0, owner(stat.pid))
    if stat.state != "Z" or not readable:
        return None
    signal = stat.exit_status & 0x7F
    return -signal if signal else stat.exit_status >> 8


def io_of(stat: procs.Stat, rights: Rights) -> Dict[str, Any]:
    """Bytes that the process read and wrote so far."""
    problem = rights.refusal(stat, "io")
    if problem is not None:
        return problem
    path = "/proc/%d/io" % stat.pid
    try:
        raw = careful.read(("io", stat.pid), lambda: read_file(path)) if stat.state == "D" else read_file(path)
    except (OSError, careful.Stuck) as error:
        return rights.explain(stat, "io", error)
    fields = dict(line.split(b": ", 1) for line in raw.splitlines() if b": " in line)
    return seen({name: int(fields[name.encode()]) for name in ("rchar", "read_bytes", "wchar")})


def memory_of(stat: procs.Stat) -> Dict[str, int]:
    """VmSize, VmLck, RssFile and RssShmem in bytes, as far as the kernel says."""
    raw = procs.read_bytes("/proc/%d/status" % stat.pid, 4096) or b""
    return {name.decode("ascii"): int(value) * 1024 for name, value in _STATUS.findall(raw)}
