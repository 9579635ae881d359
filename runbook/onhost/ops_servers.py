"""What runs on this host that nobody told us of: who listens on which port, and where a process writes its output."""

import os
import stat as modes
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import procs
from .errors import OpError
from .listeners import find_owners, listening

MOST_WRITTEN = 50
_WRITES = os.O_WRONLY | os.O_RDWR


def ports(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """Every listening TCP socket with the processes that hold it: {port, address, pid, start}. pid 0: the owner is not visible."""
    table = procs.visible(procs.process_table(), ctx.scope)
    sockets = listening(None)
    owners = find_owners({found.inode for found in sockets}, table)
    rows = []
    for found in sockets:
        port = int(found.address.rpartition(":")[2])
        pids = sorted(owners.get(found.inode, ()))
        if not pids and ctx.scope is not None:
            continue  # not of the part of the host that is ours to see
        for pid in pids or [0]:
            rows.append({"port": port, "address": found.address, "pid": pid, "start": table[pid].start if pid else 0})
    return rows, b""


def describe(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """One process: what it was started as, and where its output goes. Raises not_found when it is gone.

    `env`: names of variables of its environment that are wanted; no others are told.
    """
    pid = int(args["pid"])
    stat = procs.read_stat(pid)
    if stat is None or not procs.is_visible(pid, ctx.scope):
        raise OpError("not_found", "there is no process %d" % pid, "it has ended, or never was: list what runs without naming one")
    careful = (lambda read: procs.bounded(lambda: read(pid))) if stat.state == "D" else (lambda read: read(pid))
    raw = careful(procs.cmdline)
    files = _open(pid)
    return {
        "pid": pid,
        "start": stat.start,
        "sid": stat.sid,
        "ppid": stat.ppid,
        "state": stat.state,
        "title": procs.title_of(stat.comm, raw),
        "argv": procs.split_cmdline(raw),
        "exe": procs.read_link("/proc/%d/exe" % pid) or "",
        "cwd": procs.read_link("/proc/%d/cwd" % pid) or "",
        "age_s": procs.age_s(stat),
        "run": careful(lambda number: procs.environ_value(number, "RUNBOOK_RUN")) or "",
        "launch": careful(lambda number: procs.environ_value(number, "RUNBOOK_LAUNCH")) or "",
        "env": {name: text for name, text in ((name, careful(_variable(name))) for name in args.get("env") or ()) if text},
        "readable": files is not None,
        "outputs": [_output(pid, fd, ctx) for fd in (1, 2)] if files is not None else [],
        "written": _written(pid, files or {}),
    }, b""


def _variable(name: str) -> Callable[[int], Optional[str]]:
    return lambda pid: procs.environ_value(pid, name)


OPS = {"ports": ports, "describe": describe}


def _open(pid: int) -> Optional[Dict[int, str]]:
    """fd -> target; None when they are not ours to see."""
    try:
        names = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return None
    links = ((int(name), procs.read_link("/proc/%d/fd/%s" % (pid, name))) for name in names)
    return {fd: target for fd, target in links if target is not None}


def _output(pid: int, fd: int, ctx: Any) -> Dict[str, Any]:
    """Where descriptor 1 or 2 leads: file, pipe, socket, tty, null, deleted or closed; behind a pipe, what its readers write."""
    target = procs.read_link("/proc/%d/fd/%d" % (pid, fd))
    found: Dict[str, Any] = {"fd": fd, "kind": _kind(target), "path": target or "", "readers": []}
    if found["kind"] == "pipe":
        found["readers"] = _readers(str(target), pid, ctx)
    return found


def _kind(target: Optional[str]) -> str:
    if target is None:
        return "closed"
    for prefix, kind in (("pipe:", "pipe"), ("socket:", "socket"), ("/dev/null", "null"), ("/dev/pts", "tty"), ("/dev/tty", "tty")):
        if target.startswith(prefix):
            return kind
    if target.endswith(" (deleted)"):
        return "deleted"
    return "file"


def _readers(pipe: str, writer: int, ctx: Any) -> List[Dict[str, Any]]:
    """Who reads a pipe, as `tee` does, and the files that they write themselves."""
    rows = []
    for pid in procs.visible(procs.process_table(), ctx.scope):
        if pid == writer:
            continue
        files = _open(pid) or {}
        if any(target == pipe and not _flags(pid, fd) & _WRITES for fd, target in files.items()):
            rows.append({"pid": pid, "title": procs.title(pid), "written": _written(pid, files)})
    return rows


def _written(pid: int, files: Dict[int, str]) -> List[str]:
    """Regular files that it holds open for writing, each once, in the order of their descriptors."""
    found: List[str] = []
    seen: Set[str] = set()
    for fd, target in sorted(files.items()):
        if target.startswith("/") and target not in seen and _kind(target) == "file" and _flags(pid, fd) & _WRITES:
            seen.add(target)
            if _is_regular(pid, fd):
                found.append(target)
    return found[:MOST_WRITTEN]


def _is_regular(pid: int, fd: int) -> bool:
    try:
        return modes.S_ISREG(os.stat("/proc/%d/fd/%d" % (pid, fd)).st_mode)
    except OSError:
        return False


def _flags(pid: int, fd: int) -> int:
    """The open flags of a descriptor; 0 (read only) when they cannot be read."""
    raw = procs.read_bytes("/proc/%d/fdinfo/%d" % (pid, fd), 4096) or b""
    for line in raw.splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8)
    return 0
