"""Who listens on a TCP port: /proc/net/tcp{,6} joined with the open descriptors of each process."""

import os
import socket
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import procs

_LISTEN = "0A"
_MOST_TABLE = 64 << 20


class Listening(NamedTuple):
    """A listening socket: the address it is bound to and its inode."""

    address: str
    inode: int


def listeners(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """Owners of the port's listening sockets; `ours` below or in the session of `tree` [pid, start]. pid 0: owner not visible."""
    sockets = listening(int(args["port"]))
    if not sockets:
        return [], b""
    table = procs.visible(procs.process_table(), ctx.scope)
    ours = tree_and_session(args.get("tree"), table)
    owners = find_owners({found.inode for found in sockets}, table)
    uptime = procs.uptime_s()
    rows = []
    for found in sockets:
        rows += [_row(found, pid, table, ours, uptime) for pid in sorted(owners.get(found.inode, ()))] or [_unseen(found)]
    return rows, b""


def _row(found: Listening, pid: int, table: Dict[int, procs.Stat], ours: Set[int], uptime: float) -> Dict[str, Any]:
    stat = table[pid]
    title = procs.title_of(stat.comm, procs.cmdline(pid))
    age_s = procs.age_s(stat, uptime)
    return {"pid": pid, "start": stat.start, "title": title, "ours": pid in ours, "address": found.address, "age_s": age_s}


def _unseen(found: Listening) -> Dict[str, Any]:
    return {"pid": 0, "start": 0, "title": "", "ours": False, "address": found.address, "age_s": None}


def tree_and_session(tree: Optional[List[int]], table: Dict[int, procs.Stat]) -> Set[int]:
    """pids of the process, its descendants, and its session: children whose parent died are found by the latter."""
    if not tree:
        return set()
    pid, start = tree
    session = {stat.pid for stat in table.values() if stat.sid == pid}
    if pid in table and table[pid].start == start:
        return session | {pid} | procs.descendants(pid, table)
    return session


def listening(port: Optional[int]) -> List[Listening]:
    """All sockets that listen on the port, or on any, IPv4 first."""
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        text = (procs.read_bytes(path, _MOST_TABLE) or b"").decode("ascii", "replace")
        found += parse_tcp_table(text, port)
    return found


def parse_tcp_table(text: str, port: Optional[int]) -> List[Listening]:
    """The table's sockets that listen on the port, or on any."""
    wanted = "" if port is None else ":%04X" % port
    rows = (line.split() for line in text.splitlines()[1:] if wanted in line)
    return [Listening(parse_address(row[1]), int(row[9])) for row in rows if row[3] == _LISTEN and row[1].endswith(wanted)]


def parse_address(text: str) -> str:
    """`0100007F:1F90` as `127.0.0.1:8080`: each 32-bit word is in the machine's byte order."""
    raw, _, port = text.partition(":")
    words = [int(raw[at : at + 8], 16) for at in range(0, len(raw), 8)]
    packed = struct.pack("=%dI" % len(words), *words)
    if len(words) == 1:
        return "%s:%d" % (socket.inet_ntop(socket.AF_INET, packed), int(port, 16))
    return "[%s]:%d" % (socket.inet_ntop(socket.AF_INET6, packed), int(port, 16))


def find_owners(inodes: Set[int], table: Dict[int, procs.Stat]) -> Dict[int, Set[int]]:
    """inode -> pids that hold the socket open; several after a fork."""
    wanted = {"socket:[%d]" % inode: inode for inode in inodes}
    owners: Dict[int, Set[int]] = {}
    own = os.getpid()
    for pid in table:
        if pid == own:
            continue
        for _, target in procs.open_files(pid):
            if target in wanted:
                owners.setdefault(wanted[target], set()).add(pid)
    return owners
