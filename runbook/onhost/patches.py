"""Patching a file so that it can always be undone, whatever dies in between.

    record (original bytes, synced) -> file replaced (one rename) -> bytecode removed          patch
    file replaced back (one rename) -> bytecode removed -> record closed                       restore

The record is whole before the file changes, and both replacements are one rename of a file that already has its mode, owner
and times: a crash leaves the patched or the original bytes, and `restore` recognises either by its hash. A record is open until
the original bytes are back. Patches of one file stack: each record keeps the bytes that it found, restored newest first.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import bytecode, undo_text
from .errors import OpError
from .files import atomic_write, sync_folder
from .runfolder import RunFolder, checked_name, locked, read_json, run_names, undo_lock, write_json

MOST_SOURCE = 64 << 20
MOST_RECORDS = 5000


def digest(data: bytes) -> str:
    """sha256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _denied(path: str, why: str, hint: str) -> OpError:
    return OpError("permission", "cannot patch %s: %s" % (path, why), hint)


def _read_target(path: str) -> Tuple[bytes, os.stat_result]:
    """Bytes and status of a regular file, both of the same open file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OpError("not_found", "%s does not exist" % path, "check the path or the module's name") from None
    except OSError as error:
        raise OpError("permission", "cannot read %s: %s" % (path, error.strerror), "connect as a user who may read it") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OpError("unsupported", "%s is not a regular file" % path, "name the source file itself")
    with os.fdopen(fd, "rb") as source:
        data = source.read(MOST_SOURCE + 1)
    if len(data) > MOST_SOURCE:
        raise OpError("unsupported", "%s is larger than %d MiB" % (path, MOST_SOURCE >> 20), "this is no source file")
    return data, status


def _check_rights(path: str, status: os.stat_result) -> None:
    """Refuse, before anything is written, what the replacement could not do or could not undo."""
    folder = os.path.dirname(path)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise _denied(path, "its file system is read-only", "patch a writable copy, for example a development install")
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise _denied(path, "the file is read-only (mode %o)" % stat.S_IMODE(status.st_mode), "`chmod u+w` it, or patch a writable copy")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _denied(path, "its folder %s is not writable" % folder, "connect as the owner of the installation")
    if status.st_uid != os.geteuid() and os.geteuid() != 0:
        raise _denied(path, "it belongs to uid %d and would change its owner" % status.st_uid, "connect as its owner")
    if os.geteuid() != 0 and status.st_gid not in _groups_of_new_files(folder):
        why = "it belongs to group %d, which this account is not in, and would change its group" % status.st_gid
        raise _denied(path, why, "`chgrp` it to a group of this account")


def _groups_of_new_files(folder: str) -> Set[int]:
    """The groups that a file which we make in this folder can have."""
    status = os.stat(folder)
    return {os.getegid(), *os.getgroups(), *([status.st_gid] if status.st_mode & stat.S_ISGID else [])}


def _refuse_other_run(state_dir: str, run: str, path: str) -> None:
    for record in records(state_dir):
        if record["path"] == path and record["run"] != run and record["state"] == "open":
            hint = "wait for that run, or `runbook restore %s`" % record["run"]
            raise OpError(
                "busy",
                "%s carries the patch `%s` of run %s" % (path, record["id"], record["run"]),
                hint,
                {"run": record["run"], "id": record["id"]},
            )


def records(state_dir: str, run: Optional[str] = None) -> List[Dict[str, Any]]:
    """Undo records of one run or of all, oldest first; each with `folder`. At most 5,000 are read."""
    runs = os.path.join(state_dir, "runs")
    found: List[Dict[str, Any]] = []
    for name in run_names(state_dir) if run is None else [run]:
        for id in _names(os.path.join(runs, name, "undo")):
            folder = os.path.join(runs, name, "undo", id)
            record = read_json(os.path.join(folder, "record.json")) if "." not in id[:1] and len(found) < MOST_RECORDS else None
            if record is not None:
                found.append({**record, "folder": folder})
    return sorted(found, key=lambda record: record["seq"])


def open_records(state_dir: str, run: str) -> List[Dict[str, Any]]:
    """What this run still has to undo, oldest first."""
    return [record for record in records(state_dir, run) if record["state"] == "open"]


def abandoned(state_dir: str, lives: Callable[[str], bool], most: int = 20) -> List[Dict[str, str]]:
    """Open records that nobody will act on by himself: their run's keeper does not live. At most `most`, for a quick look."""
    found: List[Dict[str, str]] = []
    for run in run_names(state_dir):
        if len(found) >= most or not _names(os.path.join(state_dir, "runs", run, "undo")) or lives(run):
            continue
        found += [{"run": run, "id": record["id"], "path": record["path"]} for record in open_records(state_dir, run)]
    return found[:most]


def look(record: Dict[str, Any]) -> Dict[str, str]:
    """What the file of a record holds now: `state` is patched, original, edited, missing or unreadable."""
    try:
        sha = digest(_read_target(record["path"])[0])
    except OpError as error:
        return {"sha256_now": "", "state": "missing" if error.code == "not_found" else "unreadable"}
    known = {record["sha256_after"]: "patched", record["sha256_before"]: "original"}
    return {"sha256_now": sha, "state": known.get(sha, "edited")}


def view(record: Dict[str, Any]) -> Dict[str, Any]:
    """The part of a record that the controller is told."""
    return {
        key: record[key] for key in ("id", "run", "path", "folder", "sha256_before", "sha256_after", "mode", "mtime_ns", "undo_after_s")
    }


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _beside(path: str, run: str, id: str, end: str) -> str:
    """A name of ours in the file's folder. No .py at its end: nothing imports it. Fixed, so that a crash's rest is found."""
    folder, name = os.path.split(path)
    return os.path.join(folder, (".%s.%s-%s" % (name, run, id))[:200] + end)


def _write_record(place: RunFolder, record: Dict[str, Any], original: bytes, patched: bytes) -> str:
    """Put the undo record on disk whole, under its final name in one rename; answers its folder."""
    folder = os.path.join(place.undo, record["id"])
    partial = os.path.join(place.undo, "." + record["id"])
    for stale in (partial, folder):  # a crashed try, or a closed record of the same id
        if os.path.isdir(stale):
            shutil.rmtree(stale)
    os.mkdir(partial, 0o700)
    atomic_write(os.path.join(partial, "original"), original, 0o600)
    atomic_write(os.path.join(partial, "patched"), patched, 0o600)
    atomic_write(os.path.join(partial, "HOW_TO_RESTORE.txt"), undo_text.how_to(record, folder).encode("utf-8", "surrogateescape"), 0o600)
    write_json(os.path.join(partial, "record.json"), record)
    os.rename(partial, folder)
    sync_folder(place.undo)
    return folder


def _replace(record: Dict[str, Any], data: bytes, mtime_ns: int) -> None:
    """Give the file these bytes, with the mode, owner and extended attributes of the record, in one rename."""
    path, temp = record["path"], record["temp"]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temp)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(data)
            out.flush()
            if os.geteuid() == 0 or record["gid"] != os.fstat(fd).st_gid:
                os.fchown(fd, record["uid"], record["gid"])
            _copy_attributes(path, fd)
            os.fchmod(fd, record["mode"])
            os.utime(fd, ns=(record["atime_ns"], mtime_ns))
            os.fsync(fd)
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        raise
    sync_folder(os.path.dirname(path))


def _copy_attributes(path: str, fd: int) -> None:
    """Carry extended attributes (ACLs, labels) over, as far as this user and file system may."""
    try:
        names = os.listxattr(path)
    except OSError:
        return  # the file system has none
    for name in names:
        with contextlib.suppress(OSError):  # security.* is root's; the folder's default stands then
            os.setxattr(fd, name, os.getxattr(path, name))


def patch(
    state_dir: str, run: str, id: str, path: str, expect_sha256: str, data: bytes, undo_after_s: float, announce: Any = None
) -> Dict[str, Any]:
    """Replace a file's bytes after their undo record is on disk; answers the record.

    `announce` is called between the two, so that whoever owns the undo timer knows of it first. Raises OpError with code changed,
    busy, exists, permission, not_found, unsupported or failed; then the file is as it was.
    """
    place, real = RunFolder(state_dir, run), os.path.realpath(path)
    checked_name(id, "patch")
    if undo_after_s < 1:
        raise OpError("bad_request", "undo_after %.3g s is below 1 s" % undo_after_s, "write for example `undo_after: 2h`")
    with locked(undo_lock(state_dir)):
        place.create()
        again = _same_patch(place, id, real, expect_sha256, digest(data))
        if again is not None:
            return {**view(again), "bytecode_left": bytecode.remove_compiled(real)}
        original, status = _read_target(real)
        _refuse_other_run(state_dir, run, real)  # before its bytes: they differ because of that run
        if digest(original) != expect_sha256:
            raise OpError(
                "changed", "%s is not the file that was read" % real, "look who edits it, then run again", {"sha256_now": digest(original)}
            )
        if any(record["id"] == id for record in open_records(state_dir, run)):
            raise OpError("exists", "run %s already has an open patch `%s`" % (run, id), "restore it first")
        _check_rights(real, status)
        record = {
            "id": id,
            "run": run,
            "path": real,
            "asked": path,
            "temp": _beside(real, run, id, ".tmp"),
            "kept": _beside(real, run, id, ".kept") if status.st_nlink > 1 else "",
            "sha256_before": expect_sha256,
            "sha256_after": digest(data),
            "mode": stat.S_IMODE(status.st_mode),
            "uid": status.st_uid,
            "gid": status.st_gid,
            "mtime_ns": status.st_mtime_ns,
            "atime_ns": status.st_atime_ns,
            "undo_after_s": undo_after_s,
            "seq": time.time_ns(),
            "state": "open",
        }
        _apply(place, record, original, data, announce)
    left = bytecode.remove_compiled(real)
    return {**view({**record, "folder": os.path.join(place.undo, id)}), "bytecode_left": left}


def _same_patch(place: RunFolder, id: str, real: str, before: str, after: str) -> Optional[Dict[str, Any]]:
    """The record of this very patch, when it stands: it is asked for again, since the link was lost before our answer arrived.

    One that was announced and not made is forgotten, so that it is made now.
    """
    for record in open_records(place.state_dir, place.run):
        if record["id"] == id and (record["path"], record["sha256_before"], record["sha256_after"]) == (real, before, after):
            state = look(record)["state"]
            if state == "patched":
                return record
            if state == "original":
                _forget(record, record["folder"])
    return None


def _apply(place: RunFolder, record: Dict[str, Any], original: bytes, data: bytes, announce: Any) -> None:
    try:
        folder = _write_record(place, record, original, data)
    except OSError as error:
        raise OpError(
            "failed", "cannot write the undo record in %s: %s" % (place.undo, error.strerror), "nothing was changed; free space there"
        ) from None
    try:
        if announce is not None:
            announce()
        if record["kept"]:
            _keep_inode(record)
        _replace(record, data, bytecode.fresh_mtime_ns(record["mtime_ns"], time.time_ns()))
    except OSError as error:
        _forget(record, folder)
        code = "permission" if isinstance(error, PermissionError) else "failed"
        raise OpError(code, "cannot replace %s: %s" % (record["path"], error.strerror), "nothing was changed") from None
    except OpError:  # nobody would own the undo timer
        _forget(record, folder)
        raise


def _keep_inode(record: Dict[str, Any]) -> None:
    """Hold on to a file that has other names, so that restoring makes it one file with them again. They never see the patch."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record["kept"])
    os.link(record["path"], record["kept"])


def _forget(record: Dict[str, Any], folder: str) -> None:
    """Take back the record of a change that was not made."""
    _drop_kept(record)
    shutil.rmtree(folder)


def _drop_kept(record: Dict[str, Any]) -> None:
    if record.get("kept"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(record["kept"])


def restore(state_dir: str, run: str, ids: Optional[List[str]] = None) -> List[Dict[str, Any]]:
    """Undo these patches of a run, or all, newest first; answers one report each. Each is tried, whatever became of the others."""
    if not RunFolder(state_dir, run).exists():
        return [_report(id, "", "already", "", "no record of it on this host") for id in ids or []]
    with locked(undo_lock(state_dir)):
        found = records(state_dir, run)
        known = {record["id"] for record in found}
        reports = [_restore_one(record, found) for record in reversed(found) if ids is None or record["id"] in ids]
    return reports + [_report(id, "", "already", "", "no record of it on this host") for id in ids or [] if id not in known]


def _report(id: str, path: str, state: str, sha256_now: str, note: str = "") -> Dict[str, Any]:
    return {"id": id, "path": path, "state": state, "sha256_now": sha256_now, "note": note}


def _restore_one(record: Dict[str, Any], all_records: List[Dict[str, Any]]) -> Dict[str, Any]:
    id, path = record["id"], record["path"]
    if record["state"] != "open":
        return _report(id, path, "already", "", "restored before")
    with contextlib.suppress(OSError):
        os.unlink(record["temp"])  # what a killed writer left
    try:
        now, _ = _read_target(path)
        sha = digest(now)
        if sha == record["sha256_before"] != record["sha256_after"]:
            return _close(record, "already", sha)
        if sha != record["sha256_after"]:
            return _report(id, path, "conflict", sha, undo_text.conflict(record, sha, all_records))
        _put_back(record)
    except OpError as error:
        return _report(
            id,
            path,
            "missing" if error.code == "not_found" else "conflict",
            "",
            "%s; the original is kept in %s" % (error, record["folder"]),
        )
    except OSError as error:
        return _report(id, path, "conflict", "", "cannot write it: %s; the original is kept in %s" % (error.strerror, record["folder"]))
    return _close(record, "restored", record["sha256_before"])


def _put_back(record: Dict[str, Any]) -> None:
    """Replace the patched file by the original bytes, which must still be the ones that were found."""
    with open(os.path.join(record["folder"], "original"), "rb") as source:
        original = source.read()
    if digest(original) != record["sha256_before"]:
        raise OpError("conflict", "the kept original of %s is damaged" % record["path"])
    if record.get("kept") and _still_original(record):
        os.replace(record["kept"], record["path"])
        sync_folder(os.path.dirname(record["path"]))
    else:
        _replace(record, original, record["mtime_ns"])


def _still_original(record: Dict[str, Any]) -> bool:
    """Whether the held inode is unchanged: somebody may have written to it under another of its names."""
    try:
        data, status = _read_target(record["kept"])
    except OpError:
        return False
    return digest(data) == record["sha256_before"] and status.st_mtime_ns == record["mtime_ns"]


def _close(record: Dict[str, Any], state: str, sha: str) -> Dict[str, Any]:
    _drop_kept(record)
    left = bytecode.remove_compiled(record["path"])
    kept = {key: value for key, value in record.items() if key not in ("folder", "format")}
    write_json(os.path.join(record["folder"], "record.json"), {**kept, "state": state})
    return _report(record["id"], record["path"], state, sha, "; ".join("stale bytecode stays: " + item for item in left))
