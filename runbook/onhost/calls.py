"""In which system call each thread waits, and who could end that wait: /proc/PID/task/TID/syscall, which needs the right to trace it.

Reading it touches nothing: no thread is stopped or woken, and none of its switches counts it.
"""

import errno
import os
import signal
import struct
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import careful, carriers, procs, py_spy, shared_memory, wait_limits
from .descriptors import READS, WRITES, Holders
from .rights import Rights, read_file
from .sockets import Found
from .sources import absent, blind, seen

MOST_THREADS = 200  # of one process; of more nothing is said, since a part would look like all
_NUMBERS = {
    "x86_64": {
        **{"futex": (202,), "read": (0, 19, 45, 47), "write": (1, 20), "poll": (7,), "ppoll": (271,)},
        **{"wait4": (61,), "waitid": (247,), "vfork": (56, 58, 435), "lock": (72, 73)},
    },
    "aarch64": {
        **{"futex": (98,), "read": (63, 65, 207, 212), "write": (64, 66), "ppoll": (73,)},
        **{"wait4": (260,), "waitid": (95,), "vfork": (220, 435), "lock": (25, 32)},
    },
}
_NAMES = {number: name for name, numbers in _NUMBERS.get(os.uname().machine, {}).items() for number in numbers}
_FUTEX_WAITS = (0, 6, 9, 11, 13)  # linux/futex.h: WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
_FUTEX_COMMAND, _FUTEX_PRIVATE = 0x7F, 0x80
_MUTEX = struct.Struct("=5I")
_CONTENDED, _PLAIN_KINDS = 2, 0x303  # kinds 0 to 3, elision or not
_P_PID = 1
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_POLLED, _TO_READ = struct.Struct("=iHh"), 0x1 | 0x2 | 0x8 | 0x10 | 0x2000  # struct pollfd; IN, PRI, ERR, HUP, RDHUP
MOST_POLLED = 64
Row = Dict[str, Any]


class Reading:
    """The waits of some processes. First what they read, so that its other ends can be searched for; then all of them as rows."""

    def __init__(self, stats: Iterable[procs.Stat], rights: Rights) -> None:
        self._found: List[Tuple[procs.Stat, List[Row]]] = []
        self._rings: Set[int] = set()  # whose io_uring may write while all their threads wait
        self._problem: Optional[Row] = None if _NAMES else blind("the system calls of a %s are not known here" % os.uname().machine)
        self.add(stats, rights)

    def add(self, stats: Iterable[procs.Stat], rights: Rights) -> None:
        """Read some more; what they read is not searched for any more."""
        for stat in stats:
            if _NAMES and stat.state not in "ZX":
                self._read(stat, rights)

    def _read(self, stat: procs.Stat, rights: Rights) -> None:
        problem = rights.refusal(stat, "syscall")
        if problem is None:
            try:
                self._found.append((stat, careful.read(("syscall", stat.pid), lambda: _calls(stat.pid))))
                self._rings |= {stat.pid} if _has_ring(stat.pid) else set()
            except (OSError, careful.Stuck) as error:
                problem = rights.explain(stat, "syscall", error)
        self._problem = self._problem or problem

    def names(self) -> Set[str]:
        """Pipes that are read or written."""
        return {name for _, calls in self._found for call in calls for name in call.get("names", ()) if name.startswith("pipe:[")}

    def rows(self, found: Found, holders: Holders, searched: Set[str], complete: bool, table: Dict[int, procs.Stat]) -> Row:
        """The outcome. `searched`: names whose holders were looked for."""
        ends, quiet = _other_ends(found), wait_limits.no_alarms()
        shared = shared_memory.read([stat for stat, _ in self._found], table)
        rows = []
        for stat, calls in self._found:
            for call in calls:
                if "names" in call:
                    call.update(_peers(call, call.pop("names"), ends, holders, searched, complete))
                    call["peers_known"] = call["peers_known"] and not self._rings.intersection(call["peers"])
            carriers.note(stat.pid, calls, found, ends, holders)
            more = {"alarm": wait_limits.alarm_of(stat.pid, quiet), "shared": shared.get(stat.pid)}
            rows.append(dict({"pid": stat.pid, "start": stat.start, "caught": caught(stat.pid), "threads": calls}, **more))
        return seen(rows) if rows else self._problem or absent("no process of it lives")


def _calls(pid: int) -> List[Row]:
    folder = "/proc/%d/task" % pid
    tids = sorted(map(int, os.listdir(folder)))
    if len(tids) > MOST_THREADS:
        raise OSError(errno.E2BIG, "it has more than %d threads" % MOST_THREADS)
    rows: List[Row] = []
    for tid in tids:
        try:
            rows.append(dict(parse(read_file("%s/%d/syscall" % (folder, tid), 256), pid), tid=tid))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return rows


def _has_ring(pid: int) -> bool:
    folder = "/proc/%d/fd" % pid
    return any((procs.read_link("%s/%s" % (folder, fd)) or "").startswith("anon_inode:[io_uring]") for fd in os.listdir(folder))


def parse(raw: bytes, pid: int) -> Row:
    """One line: number and six arguments in hex; or `running`, or -1 for a thread that is in the kernel for another reason."""
    fields = raw.split()
    name = _NAMES.get(int(fields[0]), "") if len(fields) >= 7 else ""
    arguments = [int(field, 16) for field in fields[1:7]]
    if name == "futex":
        return _futex(pid, arguments)
    if name == "read":
        return _read_call(pid, arguments[0] & 0xFFFFFFFF)
    if name == "write":
        place = procs.read_link("/proc/%d/fd/%d" % (pid, arguments[0] & 0xFFFFFFFF)) or ""
        return {"call": "write", "names": [place]} if place.startswith("pipe:[") else {"call": ""}  # a socket may have a limit of time
    if name in ("poll", "ppoll"):
        return _poll(pid, arguments, arguments[2] != 0 if name == "ppoll" else not arguments[2] >> 31 & 1)
    if name == "wait4":
        child = arguments[0] & 0xFFFFFFFF
        return {"call": "child", "child": child if 0 < child < 1 << 31 else None}
    if name == "waitid":
        return {"call": "child", "child": arguments[1] & 0xFFFFFFFF if arguments[0] & 0xFFFFFFFF == _P_PID else None}
    return {"call": "child" if name == "vfork" else name}


def _read_call(pid: int, fd: int) -> Row:
    name = procs.read_link("/proc/%d/fd/%d" % (pid, fd)) or ""
    timed, doubt = wait_limits.of_receive(pid, fd) if name.startswith("socket:[") else (False, "")
    terminal = name.startswith(_TERMINALS)
    return dict(
        {"call": "read", "names": [name], "timed": timed}, **({"doubt": doubt} if doubt else {}), **({"terminal": True} if terminal else {})
    )


def _poll(pid: int, arguments: List[int], timed: bool) -> Row:
    """A wait until one of several can be read; any other kind of poll has no name."""
    raw = _memory(pid, arguments[0], arguments[1] * _POLLED.size) if 0 < arguments[1] <= MOST_POLLED else b""
    asked = [(fd, events) for fd, events, _ in _POLLED.iter_unpack(raw) if fd >= 0]
    if not asked or any(events & ~_TO_READ for _, events in asked):
        return {"call": ""}
    return {"call": "poll", "names": [procs.read_link("/proc/%d/fd/%d" % (pid, fd)) or "" for fd, _ in asked], "timed": timed}


def _futex(pid: int, arguments: List[int]) -> Row:
    operation = arguments[1]
    if operation & _FUTEX_COMMAND not in _FUTEX_WAITS:
        return {"call": ""}
    private = bool(operation & _FUTEX_PRIVATE)
    row = {"call": "futex", "at": arguments[0], "private": private, "timed": arguments[3] != 0}
    owner = _mutex_owner(pid, arguments[0]) if private else 0
    return dict(row, owner=owner) if owner else row


def _mutex_owner(pid: int, at: int) -> int:
    """The thread that holds the C library's mutex of that address; 0 where no such mutex is there.

    nptl: lock word (2 while somebody waits), count, owner, users, kind. At a semaphore or a condition the word is another one.
    """
    raw = _memory(pid, at, _MUTEX.size)
    word, _, owner, users, kind = _MUTEX.unpack(raw) if raw else (0, 0, 0, 0, 0)
    held = word == _CONTENDED and 0 < users < MOST_THREADS and kind & ~_PLAIN_KINDS == 0
    return int(owner) if held and os.path.exists("/proc/%d/task/%d" % (pid, owner)) else 0


def _memory(pid: int, at: int, size: int) -> bytes:
    """So many bytes of a process; none where they cannot be read."""
    try:
        fd = os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        raw = os.pread(fd, size, at)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)
    return raw if len(raw) == size else b""


def _other_ends(found: Found) -> Dict[str, str]:
    """The name of each TCP socket whose other end is on this host, and that one's."""
    ends = {"socket:[%d]" % one.inode: twin for one, twin in found.twins.items()}
    ends.update({twin: own for own, twin in ends.items()})
    return ends


def _peers(call: Row, names: List[str], ends: Dict[str, str], holders: Holders, searched: Set[str], complete: bool) -> Row:
    """Who could end it: who holds the other end of a pipe or the other socket, of all of them. A FIFO, a terminal, a device: anybody."""
    others, far = [], READS if call["call"] == "write" else WRITES
    for name in names:
        other = name if name.startswith("pipe:[") and name in searched else ends.get(name, "")
        others.append(holders.of(other, far if other == name else READS | WRITES) if other else set())
    return {"peers": sorted(set().union(*others)), "peers_known": complete and all(others)}


def caught(pid: int) -> Optional[List[int]]:
    """Signals for which it has a handler, but for the interrupt that every Python handles; None when that cannot be read."""
    found = procs.caught_signals(pid)
    if found is None:
        return None
    return [number for number in sorted(found) if number != signal.SIGINT or not py_spy.has_python(pid)]
