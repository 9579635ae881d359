"""Which processes belong to a launch: its tree, its session, and orphans that came to its keeper.

The keeper is a subreaper, so a double fork or a dead parent moves a descendant up to it and never out of its reach. Which launch
such an orphan came from is read from RUNBOOK_LAUNCH in its environment, or is plain when the run has only one.
"""

from typing import Any, Dict, List, Optional, Set

from . import procs

Table = Dict[int, procs.Stat]


def members(record: Dict[str, Any], table: Table, keeper: Optional[int], others: List[Dict[str, Any]]) -> Set[int]:
    """Live pids of a launch. `others` are the run's launch records, its own may be among them."""
    return {found for found in with_zombies(record, table, keeper, others) if table[found].state not in "ZX"}


def with_zombies(record: Dict[str, Any], table: Table, keeper: Optional[int], others: List[Dict[str, Any]]) -> Set[int]:
    """The same with those that died and were not collected: a rank that is a zombie is what a hang may be about."""
    pid = record["pid"]
    here = table.get(pid)
    roots: Set[int] = set()
    if here is None or here.start == record["start"]:  # else the number was reused, so that session ended long ago
        roots = {stat.pid for stat in table.values() if stat.sid == pid}
    if here is not None and here.start == record["start"]:
        roots.add(pid)
    if keeper is not None:
        roots |= _orphans(record, table, keeper, others)
    return closure(roots, table)


def _orphans(record: Dict[str, Any], table: Table, keeper: int, others: List[Dict[str, Any]]) -> Set[int]:
    mains = {(other["pid"], other["start"]) for other in others}
    adopted = [stat for stat in table.values() if stat.ppid == keeper and (stat.pid, stat.start) not in mains]
    alone = all(other["id"] == record["id"] for other in others)
    return {stat.pid for stat in adopted if alone or procs.environ_value(stat.pid, "RUNBOOK_LAUNCH") == record["id"]}


def closure(roots: Set[int], table: Table) -> Set[int]:
    """These pids and all below them."""
    children: Dict[int, List[int]] = {}
    for stat in table.values():
        children.setdefault(stat.ppid, []).append(stat.pid)
    found, queue = set(roots), list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found
