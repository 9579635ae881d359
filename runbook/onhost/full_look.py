"""The costly part of a look: what the server's processes have open, with whom they are connected, what they lock, where they write."""

import os
from typing import Any, Dict, Iterable, List, Optional, Set

from . import calls, careful, folders, in_flight, lock_paths, lock_table, pipes, procs, sockets
from .eyes import Eyes, Row
from .open_files import Key
from .process_look import Held
from .sources import absent, blind, seen

MOST_PEERS = 16
PEER_THREADS = 200  # a peer with more is looked at without them
Table = Dict[int, procs.Stat]


def look(eyes: Eyes, rows: List[Row], table: Table, watched: Iterable[str], log: str, now: float, waits: bool) -> Dict[str, Any]:
    """Complete the processes' `rows` and answer the sources that a full look has. `watched`: folders that may grow.

    waits: also in which system call each thread waits.
    """
    tree = {row["pid"] for row in rows}
    held = _complete(eyes, rows, table, _key_of(log))
    found = sockets.find(tree, eyes.holders)
    walks, problems = folders.walk_all(watched)
    lock_files = [lock for walk in walks for lock in walk.locks]
    lock_files += folders.beside(folder for one in held.values() for folder in one.folders)
    awaited = lock_paths.files(tree)
    paths = {key: path for one in held.values() for key, path in one.files.items()}
    names = {end.name for one in held.values() for end in one.pipes} | set(found.twins.values())
    names |= set(paths.values()) | {lock.path for lock in lock_files + awaited}
    reading = calls.Reading((table[row["pid"]] for row in rows), eyes.rights) if waits else None
    piped = reading.names() if reading is not None else set()
    names |= piped
    complete = eyes.holders.search(names, table, tree, eyes.rights)
    for row in rows:
        row.setdefault("pipes", seen(pipes.rows(held[row["pid"]].pipes, eyes.holders, complete)))
    kernel_locks = lock_table.read()
    locks = lock_table.rows(kernel_locks or [], tree, paths, table, eyes.holders, eyes.holders.knows(table))
    connected = sockets.rows(found, eyes.holders)
    refused = _refusal(rows)
    outside = _outside(table, tree, _peer_pids(rows, connected, locks))
    found_more: Dict[str, Any] = {}
    if reading is not None:
        reading.add(outside, eyes.rights)
        known = eyes.holders.knows(table) and not (piped and in_flight.any_of(table))
        found_more["calls"] = reading.rows(found, eyes.holders, names, known, table)
    return {
        "sockets": refused or seen(connected),
        "locks": refused or _no_table(kernel_locks) or seen(locks + folders.lock_rows(lock_files, awaited, eyes.holders, complete, now)),
        "folders": folders.growth(walks, problems, now) if watched else blind("not asked"),
        "disks": folders.disks([*([os.path.dirname(log)] if log else []), *watched, "/dev/shm"]),
        "peers": _peers(eyes, outside),
        **found_more,
    }


def _complete(eyes: Eyes, rows: List[Row], table: Table, log: Optional[Key]) -> Dict[int, Held]:
    held = {}
    for row in rows:
        stat = table[row["pid"]]
        more, held[stat.pid] = eyes.of(stat).full(stat, eyes.rights, eyes.holders, log)
        row.update(more)
    return held


def _key_of(log: str) -> Optional[Key]:
    """Which file the log is."""
    try:
        info = careful.read(("stat", log), lambda: os.stat(log)) if log else None
    except (OSError, careful.Stuck):
        return None
    return (info.st_dev, info.st_ino) if info is not None else None


def _refusal(rows: List[Row]) -> Optional[Dict[str, Any]]:
    """Why the descriptors of not one process of the tree could be read; None when some could."""
    answers = [row["files"] for row in rows]
    if answers and all(answer["type"] == "blind" for answer in answers):
        return dict(answers[0])
    return None


def _no_table(locks: Optional[List[lock_table.Lock]]) -> Optional[Dict[str, Any]]:
    return blind("/proc/locks cannot be read here") if locks is None else None


def _peer_pids(rows: List[Row], connected: List[Row], locks: List[Row]) -> Set[int]:
    pids = {row["peer_pid"] for row in connected} | {lock["holder"] for lock in locks if lock["waiters"]}
    for row in rows:
        if row["pipes"]["type"] == "seen":
            pids |= {peer for end in row["pipes"]["value"] for peer in end["peers"]}
    return {pid for pid in pids if pid is not None}


def _outside(table: Table, tree: Set[int], pids: Set[int]) -> List[procs.Stat]:
    """Those outside the tree; we ourselves and who asks us are nobody that a server waits for."""
    return [table[pid] for pid in sorted(pids - tree - {os.getpid(), os.getppid()}) if pid in table][:MOST_PEERS]


def _peers(eyes: Eyes, outside: List[procs.Stat]) -> Dict[str, Any]:
    if not outside:
        return absent("none of its sockets, pipes and locks leads to another process of this host")
    few = {stat.pid for stat in outside if stat.threads <= PEER_THREADS}
    return seen([eyes.cheap([stat], stat.pid in few)[0] for stat in outside])
