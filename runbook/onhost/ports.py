"""Who listens on a server's port, look after look: the owner of a socket is searched once and then only checked."""

import time
from typing import Any, Dict, List, NamedTuple, Set

from . import procs, sock_diag
from .descriptors import Holders
from .listeners import Listening, find_owners, listening

SEARCH_S = 10.0  # an owner that is not there, or not ours to see, is searched again only after this time


class _Owners(NamedTuple):
    pids: Set[int]
    searched: float


class Ports:
    """Owners of listening sockets by inode."""

    def __init__(self) -> None:
        self._owners: Dict[int, _Owners] = {}

    def look(self, port: int, table: Dict[int, procs.Stat], ours: Set[int], holders: Holders) -> List[Dict[str, Any]]:
        """A row for each owner, as `listeners` gives it; pid 0 for an owner that is not visible."""
        rows = []
        uptime = procs.uptime_s()
        for found in _listening(port):
            for pid in sorted(holders.of("socket:[%d]" % found.inode) & table.keys() or self._of(found.inode, table)) or [0]:
                stat = table.get(pid)
                rows.append(
                    {
                        "pid": pid,
                        "start": stat.start if stat else 0,
                        "title": procs.title_of(stat.comm, procs.cmdline(pid)) if stat else "",
                        "ours": pid in ours,
                        "address": found.address,
                        "age_s": round(procs.age_s(stat, uptime), 1) if stat else None,
                    }
                )
        return rows

    def _of(self, inode: int, table: Dict[int, procs.Stat]) -> Set[int]:
        known = self._owners.get(inode, _Owners(set(), float("-inf")))
        if time.monotonic() - known.searched > SEARCH_S or not known.pids <= table.keys():
            known = _Owners(find_owners({inode}, table).get(inode, set()), time.monotonic())
            self._owners = {**{key: one for key, one in self._owners.items() if one.pids}, inode: known}
        return known.pids & table.keys()


def _listening(port: int) -> List[Listening]:
    try:
        found = sock_diag.listening()
    except OSError:
        return listening(port)
    return [Listening(one.local, one.inode) for one in found if one.local.endswith(":%d" % port)]
