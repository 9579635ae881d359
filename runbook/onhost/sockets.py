"""TCP sockets of the server's processes, those that listen too, with byte counters where the kernel gives them."""

from typing import Any, Dict, Iterable, List, NamedTuple, Set

from . import procs, sock_diag
from .descriptors import Holders
from .listeners import parse_address
from .sock_diag import STATES, Connection

MOST_SOCKETS = 200
_MOST_TABLE = 16 << 20
_SKIPPED = (6,)  # TIME-WAIT


class Found(NamedTuple):
    """The connections of the tree by who holds them, and the name of the socket at the other end where that is on this host."""

    ours: Dict[Connection, int]
    twins: Dict[Connection, str]


def find(pids: Set[int], holders: Holders) -> Found:
    """Connections that these processes hold, whichever network namespace each is in."""
    everything = _connections(pids)
    ours = {}
    for one in sorted(everything):
        holding = holders.of("socket:[%d]" % one.inode) & pids
        if holding:
            ours[one] = min(holding)
    inodes = {(one.local, one.peer): one.inode for one in everything}
    twins = {one: "socket:[%d]" % inodes[one.peer, one.local] for one in ours if (one.peer, one.local) in inodes}
    return Found(ours, twins)


def rows(found: Found, holders: Holders) -> List[Dict[str, Any]]:
    """The oldest MOST_SOCKETS as they are, all others summed up in one row of state MORE: bytes still move in it when one of them moves."""
    each = [_row(one, pid, holders.of(found.twins.get(one, ""))) for one, pid in found.ours.items()]
    shown, rest = each[:MOST_SOCKETS], each[MOST_SOCKETS:]
    return [*shown, _sum(rest)] if rest else shown


def _row(one: Connection, pid: int, at_other_end: Set[int]) -> Dict[str, Any]:
    plain = one._asdict()
    del plain["inode"]
    return dict(plain, pid=pid, peer_pid=min(at_other_end) if at_other_end else None)


def _sum(rest: List[Dict[str, Any]]) -> Dict[str, Any]:
    def total(name: str) -> Any:
        known = [row[name] for row in rest if row[name] is not None]
        return sum(known) if known else None

    quiet = [row["quiet_s"] for row in rest if row["quiet_s"] is not None]
    return {
        "pid": min(row["pid"] for row in rest),
        "local": "",
        "peer": "%d more connections" % len(rest),
        "state": "MORE",
        "quiet_s": min(quiet) if quiet else None,
        "peer_pid": None,
        **{name: total(name) for name in ("received", "sent", "unread", "unsent")},
    }


def _connections(pids: Iterable[int]) -> List[Connection]:
    spaces = {procs.read_link("/proc/%d/ns/net" % pid): str(pid) for pid in sorted(pids, reverse=True)}
    own = procs.read_link("/proc/self/ns/net")
    try:
        found = sock_diag.connections()
    except OSError:
        found = from_tables("self")
    for space, pid in spaces.items():
        if space is not None and space != own:
            found += from_tables(pid)
    return found


def from_tables(pid: str) -> List[Connection]:
    """Without counters, from /proc/PID/net, which shows the network namespace that the process is in."""
    found = []
    for name in ("tcp", "tcp6"):
        raw = procs.read_bytes("/proc/%s/net/%s" % (pid, name), _MOST_TABLE) or b""
        for line in raw.decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if len(fields) < 10:
                continue
            state, inode = int(fields[3], 16), int(fields[9])
            if inode and state not in _SKIPPED and state < len(STATES):
                unsent, unread = (int(half, 16) for half in fields[4].split(":"))
                found.append(Connection(inode, STATES[state], _plain(fields[1]), _plain(fields[2]), unread, unsent))
    return found


def _plain(text: str) -> str:
    written = parse_address(text)
    return written.replace("[::ffff:", "").replace("]", "") if written.startswith("[::ffff:") else written
