"""Folders that grow while something is compiled or downloaded, lock files in them, and the disks below.

A file system may not answer, and a folder may hold a million files: each look is bounded in time and in files.
"""

import functools
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import careful, lock_makers
from .descriptors import Holders
from .sources import absent, blind, seen

MOST_FOLDERS = 8
MOST_FILES = 5000  # of one folder and what is below it
MOST_BESIDE = 2000  # entries of a folder that is only searched for lock files
WALK_S = 0.1
MOST_LOCK_FILES = 32
Outcome = Dict[str, Any]


class LockFile(NamedTuple):
    """A file that is a lock by its existence."""

    path: str
    changed: float


class TooMany(Exception):
    """The folder is too large to be walked at each look."""


class Walk:
    """What one folder holds. Raises TooMany, OSError."""

    def __init__(self, path: str) -> None:
        self.path, self.files, self.bytes = path, 0, 0
        self.newest: Optional[float] = None
        self.locks: List[LockFile] = []
        self._deadline = time.monotonic() + WALK_S
        if os.path.isdir(path):
            self._enter(path)

    def _enter(self, path: str) -> None:
        pending = [path]
        while pending:
            try:
                with os.scandir(pending.pop()) as entries:
                    pending += self._count(entries)
            except FileNotFoundError:
                continue  # removed while we looked
            except PermissionError:
                if not self.files:
                    raise

    def _count(self, entries: Iterable["os.DirEntry[str]"]) -> Iterator[str]:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.path
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            self.files, self.bytes = self.files + 1, self.bytes + info.st_size
            self.newest = max(info.st_mtime, self.newest or 0.0)
            if is_lock(entry.name):
                self.locks.append(LockFile(entry.path, info.st_mtime))
            if self.files > MOST_FILES:
                raise TooMany("more than %d files" % MOST_FILES)
            if time.monotonic() > self._deadline:
                raise TooMany("not walked in %.1f s" % WALK_S)


def is_lock(name: str) -> bool:
    """`*.lock`, and `lock` as torch's extension builder names it."""
    return name.endswith(".lock") or name == "lock"


def walk_all(paths: Iterable[str]) -> Tuple[List[Walk], List[str]]:
    """The folders that could be walked, and why others could not."""
    walks, problems = [], []
    for path in list(paths)[:MOST_FOLDERS]:
        try:
            walks.append(careful.read(("walk", path), functools.partial(Walk, path), 4 * WALK_S))
        except (TooMany, OSError, careful.Stuck) as problem:
            problems.append("%s: %s" % (path, problem.strerror if isinstance(problem, OSError) else problem))
    return walks, problems


def growth(walks: List[Walk], problems: List[str], now: float) -> Outcome:
    """One row a folder that could be walked, also for one that does not exist yet; blind when none could."""
    if problems and not walks:
        return blind("; ".join(problems))
    return seen([{"path": w.path, "files": w.files, "bytes": w.bytes, "newest_s": _age(w.newest, now)} for w in walks])


def beside(paths: Iterable[str]) -> List[LockFile]:
    """Lock files that lie directly in these folders."""
    found: List[LockFile] = []
    for path in sorted(set(paths))[:MOST_FOLDERS]:
        try:
            found += careful.read(("beside", path), functools.partial(_locks_in, path))
        except (OSError, careful.Stuck):
            continue  # a folder that somebody of the tree stands in; the locks themselves are not blind for it
    return found


def _locks_in(path: str) -> List[LockFile]:
    found = []
    with os.scandir(path) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_BESIDE:
                break
            if is_lock(entry.name) and entry.is_file(follow_symlinks=False):
                found.append(LockFile(entry.path, entry.stat(follow_symlinks=False).st_mtime))
    return found


def lock_rows(found: Iterable[LockFile], awaited: Iterable[LockFile], holders: Holders, complete: bool, now: float) -> List[Dict[str, Any]]:
    """As locks of kind file, those that are waited for first, then the latest changed."""
    rows: List[Dict[str, Any]] = []
    known = dict.fromkeys([*awaited, *sorted(set(found), key=lambda lock: (-lock.changed, lock.path))])
    for lock in list(known)[:MOST_LOCK_FILES]:
        pids = holders.of(lock.path)
        rows.append(
            {
                "path": lock.path,
                "kind": "file",
                "waiters": [],
                "holder": min(pids) if pids else None,
                "holder_known": bool(pids) or complete,
                "age_s": _age(lock.changed, now),
                **lock_makers.row_of(lock.path),
            }
        )
    return rows


def _age(changed: Optional[float], now: float) -> Optional[float]:
    return None if changed is None else max(0.0, now - changed)


def disks(paths: Iterable[str]) -> Outcome:
    """Free and total bytes of the file systems that these lie on, each once."""
    rows: Dict[int, Dict[str, Any]] = {}
    problems = []
    for path in dict.fromkeys(paths):
        try:
            device, row = careful.read(("disk", path), functools.partial(_disk, path))
            rows.setdefault(device, row)
        except (OSError, careful.Stuck) as problem:
            problems.append("%s: %s" % (path, problem.strerror if isinstance(problem, OSError) else problem))
    if rows:
        return seen(list(rows.values()))
    return blind("; ".join(problems)) if problems else absent("no folder to ask for")


def _disk(path: str) -> Tuple[int, Dict[str, Any]]:
    while not os.path.isdir(path) and path not in ("/", ""):
        path = os.path.dirname(path)
    device, room = os.stat(path or ".").st_dev, os.statvfs(path or ".")
    return device, {
        "path": path,
        "free": room.f_bavail * room.f_frsize,
        "total": room.f_blocks * room.f_frsize,
        "free_inodes": room.f_favail if room.f_files else None,
    }
