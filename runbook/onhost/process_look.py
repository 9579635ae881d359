"""One process as a sample sees it. Files of /proc only; what is not ours to read is blind.

cheap: state, bytes read and written, page faults, threads      full: also title, mapped weights, memory, files, pipes
"""

import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import careful, open_files, pipes, procs
from .descriptors import Descriptor, Holders, descriptors, stdin_kind
from .open_files import Key, Opened
from .rights import Rights, owner, read_file
from .sources import absent, blind, seen
from .thread_look import Room, Threads

MOST_MAPS = 16 << 20
MOST_SMAPS = 64 << 20
SMAPS_REST = 50  # so many times as long as smaps took it is left alone: it walks the page tables of all that is resident
NOT_SAMPLED = "not sampled"
_RANK = re.compile(r"(?:^|_|:|\b)TP(\d+)(?:_|\b)")
_OTHER_AXIS = re.compile(r"_(?:PP|DP)[1-9]\d*(?:_|\b)")
_WEIGHTS = re.compile(rb"\.(?:safetensors|gguf|bin|pt)(?: \(deleted\))?$", re.MULTILINE)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ ")
_STATUS = re.compile(rb"^(VmLck|RssShmem):\s+(\d+) kB", re.MULTILINE)


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
        self._variable: Optional[str] = None
        self._threads = Threads(stat.pid)
        self._smaps_at, self._smaps_cost = float("-inf"), 0.0

    def look(self, stat: procs.Stat, rights: Rights, uptime: float, room: Optional[Room]) -> Dict[str, Any]:
        """The cheap part. Threads only with `room`, where their descriptors are counted."""
        self.asked = time.monotonic()
        if self._comm != stat.comm:
            self._name(stat)
        title = procs.title_of(stat.comm, self._raw)
        return {
            "pid": stat.pid,
            "start": stat.start,
            "ppid": stat.ppid,
            "state": stat.state,
            "title": title,
            "rss": stat.rss,
            "threads": self._threads.look(room) if room is not None else [],
            "rank": rank_of(title, self._variable),
            "io": io_of(stat, rights),
            "faults": stat.faults,
            "age_s": round(procs.age_s(stat, uptime), 1),
            "exit_code": exit_code(stat),
        }

    def full(self, stat: procs.Stat, rights: Rights, holders: Holders, log: Optional[Key]) -> Tuple[Dict[str, Any], Held]:
        """The rest of its fields, but for `pipes` where its ends are in the answer's second half."""
        self._name(stat)
        found: Dict[str, Any] = {"mapped_weights": self._weights(stat, rights), **memory_of(stat)}
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
            self._raw, self._variable = careful.read(
                ("name", stat.pid), lambda: (procs.cmdline(stat.pid), procs.environ_value(stat.pid, "RANK"))
            )
        except careful.Stuck:
            pass  # what was read before still names it; else its comm does
        self._comm = stat.comm

    def _weights(self, stat: procs.Stat, rights: Rights) -> Dict[str, Any]:
        if time.monotonic() - self._smaps_at < SMAPS_REST * self._smaps_cost:
            return blind(NOT_SAMPLED)
        begin = time.monotonic()
        found = mapped_weights(stat, rights)
        self._smaps_at, self._smaps_cost = time.monotonic(), time.monotonic() - begin
        return found

    def close(self, room: Room) -> None:
        """Give the descriptors of its threads back."""
        self._threads.close(room)


def rank_of(title: str, variable: Optional[str]) -> Optional[int]:
    """Rank from a title such as `sglang::scheduler_TP1`, else from RANK; none where another parallel axis makes TP ambiguous."""
    found = _RANK.search(title)
    if found is not None:
        return None if _OTHER_AXIS.search(title) else int(found.group(1))
    return int(variable) if variable is not None and variable.isdigit() else None


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


def memory_of(stat: procs.Stat) -> Dict[str, Any]:
    """Locked and shared memory in bytes, each null where the kernel does not say."""
    raw = procs.read_bytes("/proc/%d/status" % stat.pid, 8192) or b""
    kib = {name: int(value) for name, value in _STATUS.findall(raw)}
    return {
        "locked": kib[b"VmLck"] * 1024 if b"VmLck" in kib else None,
        "shared": kib[b"RssShmem"] * 1024 if b"RssShmem" in kib else None,
    }


def mapped_weights(stat: procs.Stat, rights: Rights) -> Dict[str, Any]:
    """Resident bytes of mapped weight files; the costly smaps is read only when maps names one."""
    problem = rights.refusal(stat, "maps")
    if problem is not None:
        return problem
    if stat.state in "ZX":
        return absent("a zombie has none")
    try:
        return careful.read(("maps", stat.pid), lambda: _weights(stat.pid))
    except (OSError, careful.Stuck) as error:
        return rights.explain(stat, "maps", error)


def _weights(pid: int) -> Dict[str, Any]:
    if not _WEIGHTS.search(read_file("/proc/%d/maps" % pid, MOST_MAPS)):
        return absent()
    return seen(weight_rss(read_file("/proc/%d/smaps" % pid, MOST_SMAPS)))


def weight_rss(smaps: bytes) -> int:
    """Sum of Rss, bytes, over the mappings of weight files."""
    total, counted = 0, False
    for line in smaps.splitlines():
        if _MAPPING.match(line):
            counted = _WEIGHTS.search(line) is not None
        elif counted and line.startswith(b"Rss:"):
            total += int(line.split()[1]) * 1024
    return total
