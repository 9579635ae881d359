"""Reading the process table from /proc, without starting a process.

A file that cannot be read gives None: never a guess. Times are clock ticks since boot or seconds, sizes bytes.
"""

import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_MOST_ENVIRON = 1 << 20

Scope = Optional[Tuple[int, int]]
"""(pid, start): only processes below that one exist for us."""


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used. `start` is field 22, in ticks since boot.

    `faults`: minor and major page faults. `exit_status`: as wait(2) gives it, 0 also where it is not ours to read.
    `stack`: where its stack begins, by chance at each exec and the same in whatever is forked from it; 0 where it is not ours to read.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    flags: int
    cpu_ticks: int
    threads: int
    start: int
    rss: int
    faults: int
    exit_status: int
    stack: int


def read_bytes(path: str, most: int = 1 << 20) -> Optional[bytes]:
    """A /proc file's content, at most `most` bytes; None when it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, most) if most <= 4096 else _read_all(fd, most)
    except OSError:
        return None
    finally:
        os.close(fd)


def _read_all(fd: int, most: int) -> bytes:
    parts: List[bytes] = []
    while most > 0:
        part = os.read(fd, min(most, 65536))
        if not part:
            break
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def parse_stat(raw: bytes) -> Stat:
    """The comm may hold blanks and brackets, so the fields are counted from its last bracket.

    A process whose first thread has left while others go on is no zombie, though the kernel gives it that letter.
    """
    opening, closing = raw.index(b"("), raw.rindex(b")")
    rest = raw[closing + 2 :].split()
    left = rest[0] == b"Z" and int(rest[17]) > 1
    return Stat(
        pid=int(raw[:opening]),
        comm=raw[opening + 1 : closing].decode("utf-8", "backslashreplace"),
        state="S" if left else rest[0].decode("ascii"),
        ppid=int(rest[1]),
        pgid=int(rest[2]),
        sid=int(rest[3]),
        flags=int(rest[6]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        threads=int(rest[17]),
        start=int(rest[19]),
        rss=int(rest[21]) * PAGE,
        faults=int(rest[7]) + int(rest[9]),
        exit_status=int(rest[49]) if len(rest) > 49 else 0,
        stack=int(rest[25]) if len(rest) > 25 else 0,
    )


def read_stat(pid: int) -> Optional[Stat]:
    """One process, or None when there is none of that number."""
    raw = read_bytes("/proc/%d/stat" % pid, 4096)
    return parse_stat(raw) if raw else None


def shows_everyone() -> bool:
    """Whether /proc lists the processes of other users to us: with hidepid it does not, so that nobody can tell who else holds a thing."""
    return os.path.exists("/proc/1")


def start_ticks(pid: int) -> Optional[int]:
    """When the process started; with its pid, its lasting name."""
    stat = read_stat(pid)
    return stat.start if stat else None


def same(pid: int, start: int) -> Optional[Stat]:
    """The process if that pid still is the one that started then, zombies included."""
    stat = read_stat(pid)
    return stat if stat is not None and stat.start == start else None


def is_alive(pid: int, start: int) -> bool:
    """Whether exactly that process exists and is more than a zombie."""
    stat = same(pid, start)
    return stat is not None and stat.state not in "ZX"


def process_table() -> Dict[int, Stat]:
    """Every process but the kernel's own threads."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None and not is_kernel_thread(stat):
                table[stat.pid] = stat
    return table


def is_kernel_thread(stat: Stat) -> bool:
    """Whether it is one of the kernel's own."""
    return bool(stat.flags & _KERNEL_THREAD)


def descendants(pid: int, table: Optional[Dict[int, Stat]] = None) -> Set[int]:
    """pids below `pid`, itself excluded."""
    if table is None:
        table = process_table()
    children: Dict[int, List[int]] = {}
    for stat in table.values():
        children.setdefault(stat.ppid, []).append(stat.pid)
    found: Set[int] = set()
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found and child != pid:
                found.add(child)
                queue.append(child)
    return found


def ancestors(pid: int, table: Dict[int, Stat]) -> List[int]:
    """`pid` and its parents, up to the last one that the table has."""
    chain: List[int] = []
    while pid in table and pid not in chain:
        chain.append(pid)
        pid = table[pid].ppid
    return chain


def parse_scope(text: Optional[str]) -> Scope:
    """RUNBOOK_SCOPE as PID:START; None when there is none. Raises ValueError for anything else."""
    if not text:
        return None
    pid, _, start = text.partition(":")
    return int(pid), int(start)


def visible(table: Dict[int, Stat], scope: Scope) -> Dict[int, Stat]:
    """The part of the table below the scope's process; nothing when that process is gone."""
    if scope is None:
        return table
    pid, start = scope
    if pid not in table or table[pid].start != start:
        return {}
    return {below: table[below] for below in descendants(pid, table)}


def is_visible(pid: int, scope: Scope) -> bool:
    """Whether one process is in scope, by walking up from it."""
    if scope is None:
        return True
    root_pid, root_start = scope
    stat = read_stat(pid)
    while stat is not None and stat.ppid > 0:
        if stat.ppid == root_pid:
            return start_ticks(root_pid) == root_start
        stat = read_stat(stat.ppid)
    return False


def cmdline(pid: int) -> Optional[bytes]:
    """The raw argument area: NUL-separated, or whatever the process wrote over it."""
    return read_bytes("/proc/%d/cmdline" % pid)


def split_cmdline(raw: Optional[bytes]) -> List[str]:
    """Arguments as text; the NUL padding of a rewritten title is dropped."""
    if not raw:
        return []
    return [part.decode("utf-8", "backslashreplace") for part in raw.rstrip(b"\0").split(b"\0")]


def title_of(comm: str, raw: Optional[bytes]) -> str:
    """What the process calls itself.

    A process that renames itself (setproctitle) writes one text over its arguments and pads it with NULs, while comm is cut at 15
    bytes: then that text is the title. Otherwise comm is.
    """
    text = (raw or b"").rstrip(b"\0")
    if not text or b"\0" in text:
        return comm
    whole = text.decode("utf-8", "backslashreplace")
    padded = (raw or b"").endswith(b"\0\0")
    return whole if padded or whole.startswith(comm) else comm


def title(pid: int) -> str:
    """A process's title; empty when it is gone."""
    stat = read_stat(pid)
    return title_of(stat.comm, cmdline(pid)) if stat else ""


def main_first(pid: int, tids: Iterable[int]) -> List[int]:
    """A process's threads in order, its main one first: where the kernel's numbers have begun anew the others may have smaller ones."""
    return sorted(tids, key=lambda tid: (tid != pid, tid))


def caught_signals(pid: int) -> Optional[Set[int]]:
    """Signals for which it has a handler; None when that cannot be read."""
    raw = read_bytes("/proc/%d/status" % pid, 8192) or b""
    at = raw.find(b"\nSigCgt:")
    if at < 0:
        return None
    mask = int(raw[at + 8 : at + 40].split()[0], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def environ_value(pid: int, name: str) -> Optional[str]:
    """One variable of a process's environment as it was at exec; None when it is not set or not readable."""
    raw = b"\0" + (read_bytes("/proc/%d/environ" % pid, _MOST_ENVIRON) or b"") + b"\0"
    prefix = b"\0" + name.encode() + b"="
    begin = raw.find(prefix)
    if begin < 0:
        return None
    begin += len(prefix)
    return raw[begin : raw.index(b"\0", begin)].decode("utf-8", "backslashreplace")


def own_environ() -> Dict[str, str]:
    """Our environment as we got it: Python may have added LC_CTYPE to os.environ, which must not leak into what we start."""
    env = dict(os.environ)
    raw = read_bytes("/proc/self/environ", 16 * _MOST_ENVIRON)
    # Only this one name is looked up there: a process that renames itself may have overwritten that block.
    if raw is not None and not any(entry.startswith(b"LC_CTYPE=") for entry in raw.split(b"\0")):
        env.pop("LC_CTYPE", None)
    return env


def uids(pid: int) -> Optional[Tuple[int, int]]:
    """(real, effective) user id."""
    raw = read_bytes("/proc/%d/status" % pid, 4096) or b""
    at = raw.find(b"\nUid:")
    if at < 0:
        return None
    fields = raw[at + 5 :].split(None, 2)
    return int(fields[0]), int(fields[1])


def user_name(uid: int) -> str:
    """The account's name, or the number when it has none here."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_link(path: str) -> Optional[str]:
    """Where a /proc link points; None when it is gone or not ours to read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def open_files(pid: int) -> List[Tuple[int, str]]:
    """(fd, target) of each open file; empty when it is gone or not ours to read."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    links = ((int(name), read_link("%s/%s" % (folder, name))) for name in names)
    return [(fd, target) for fd, target in links if target is not None]


def uptime_s() -> float:
    """Seconds since boot, on the clock that start times use."""
    raw = read_bytes("/proc/uptime", 4096) or b"0"
    return float(raw.split()[0])


def age_s(stat: Stat, uptime: Optional[float] = None) -> float:
    """How long the process has lived, in seconds."""
    now = uptime_s() if uptime is None else uptime
    return max(0.0, now - stat.start / TICKS_PER_S)


def code_since(pid: int) -> float:
    """When the program that a process runs began to be read, unix seconds: its start, or that of whom it was forked from."""
    stat = read_stat(pid)
    stack, oldest = stat.stack if stat is not None else 0, 0.0
    while stat is not None and stat.stack == stack:
        oldest = max(oldest, age_s(stat))
        stat = read_stat(stat.ppid) if stat.ppid > 1 else None
    return time.time() - oldest


def boot_id() -> str:
    """The kernel's name for this boot; empty where it does not say."""
    raw = read_bytes("/proc/sys/kernel/random/boot_id", 4096) or b""
    return raw.decode("ascii", "replace").strip()


def bounded(read: Callable[[], Any], limit_s: float = 0.5) -> Any:
    """`read()` or None when it takes longer: cmdline and environ of a process stuck in the kernel can block their reader for ever."""
    box: List[Any] = []
    thread = threading.Thread(target=lambda: box.append(read()), daemon=True)
    thread.start()
    thread.join(limit_s)
    return box[0] if box else None
