"""Patching a file so that it can always be undone, whatever dies in between.

    record (original bytes, synced) -> file replaced (one rename) -> bytecode removed          patch
    file replaced back (one rename) -> bytecode removed -> record closed                       restore

The record is whole before the file changes, and both replacements are one rename of a file that already has its mode, owner
and times: a crash leaves the patched or the original bytes, and `restore` recognises either by its hash. A record is open until
the original bytes are back, or somebody gives it up by name. Patches of one file stack: each record keeps the bytes that it found,
restored newest first.
"""

import contextlib
import os
import shutil
import stat
import time
from typing import Any, Callable, Dict, List, Optional

from . import bytecode, target_file, undo_text
from .errors import OpError
from .files import atomic_write, sync_folder
from .runfolder import RunFolder, checked_name, locked, read_json, read_sound, run_names, undo_lock, write_json
from .target_file import digest

MOST_RECORDS = 5000


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
    """Undo records of one run or of all, oldest first; each with `folder`. At most 5,000 are read.

    Raises OpError for a damaged one of that run; of all runs it is left out.
    """
    read = read_json if run is not None else read_sound
    runs = os.path.join(state_dir, "runs")
    found: List[Dict[str, Any]] = []
    for name in run_names(state_dir) if run is None else [run]:
        for id in _names(os.path.join(runs, name, "undo")):
            folder = os.path.join(runs, name, "undo", id)
            record = read(os.path.join(folder, "record.json")) if "." not in id[:1] and len(found) < MOST_RECORDS else None
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
        sha = digest(target_file.read(record["path"])[0])
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
        original, status = target_file.read(real)
        _refuse_other_run(state_dir, run, real)  # before its bytes: they differ because of that run
        if digest(original) != expect_sha256:
            raise OpError(
                "changed", "%s is not the file that was read" % real, "look who edits it, then run again", {"sha256_now": digest(original)}
            )
        if any(record["id"] == id for record in open_records(state_dir, run)):
            raise OpError("exists", "run %s already has an open patch `%s`" % (run, id), "restore it first")
        target_file.check_rights(real, status)
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
            "device": os.stat(os.path.dirname(real)).st_dev,
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
        target_file.replace(record, data, bytecode.fresh_mtime_ns(record["mtime_ns"], time.time_ns()))
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


def restore(state_dir: str, run: str, ids: Optional[List[str]] = None, forget: bool = False) -> List[Dict[str, Any]]:
    """Undo these patches of a run, or all, newest first; answers one report each. Each is tried, whatever became of the others.

    `forget`: a file that is missing or was edited since is given up: it stays as it is, and its record is closed.
    """
    if not RunFolder(state_dir, run).exists():
        return [_report(id, "", "already", "", "no record of it on this host") for id in ids or []]
    with locked(undo_lock(state_dir)):
        found = records(state_dir, run)
        known = {record["id"] for record in found}
        undo = _give_up if forget else _restore_one
        reports = [undo(record, found) for record in reversed(found) if ids is None or record["id"] in ids]
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
        if not target_file.is_there(path):
            return _bring_back(record, all_records)
        now, _ = target_file.read(path)
        sha = digest(now)
        if sha == record["sha256_before"] != record["sha256_after"]:
            return _close(record, "already", sha)
        if sha != record["sha256_after"]:
            return _report(id, path, "conflict", sha, undo_text.conflict(record, sha, all_records))
        _put_back(record)
    except OpError as error:
        return _report(id, path, "conflict", "", "%s; the original is kept in %s" % (error, record["folder"]))
    except OSError as error:
        return _report(id, path, "conflict", "", "cannot write it: %s; the original is kept in %s" % (error.strerror, record["folder"]))
    return _close(record, "restored", record["sha256_before"])


def _give_up(record: Dict[str, Any], all_records: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Undo it if that can be done, else close its record as it is. One below another patch stays: that is to be given up first."""
    report = _restore_one(record, all_records)
    if report["state"] not in ("conflict", "missing") or undo_text.on_top(record, all_records):
        return report
    return _close(record, "gone", report["sha256_now"], "given up as asked: what lies there stays as it is")


def _bring_back(record: Dict[str, Any], all_records: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Undo the patch of a file that is not there: deleted, gone with its folder, or on a disk that is not mounted now.

    A deleted file is made anew: nobody's bytes are lost by it. A folder that was moved cannot be told from one that was removed, and
    carries the patch along: its record stays.
    """
    id, path, sha = record["id"], record["path"], record["sha256_before"]
    if not target_file.is_removed(record):
        return _report(id, path, "missing", "", undo_text.unmounted(record))
    if not os.path.isdir(os.path.dirname(path)):
        return _report(id, path, "missing", "", undo_text.without_folder(record))
    if undo_text.on_top(record, all_records):
        return _report(id, path, "conflict", "", undo_text.conflict(record, "", all_records))
    target_file.make_anew(record, _original(record))
    return _close(record, "restored", sha, "it had been deleted: the original was put back")


def _original(record: Dict[str, Any]) -> bytes:
    """The bytes before the patch, which must still be the ones that were found."""
    with open(os.path.join(record["folder"], "original"), "rb") as source:
        original = source.read()
    if digest(original) != record["sha256_before"]:
        raise OpError("conflict", "the kept original of %s is damaged" % record["path"])
    return original


def _put_back(record: Dict[str, Any]) -> None:
    """Replace the patched file by the original bytes."""
    original = _original(record)
    if record.get("kept") and target_file.still_original(record):
        os.replace(record["kept"], record["path"])
        sync_folder(os.path.dirname(record["path"]))
    else:
        target_file.replace(record, original, record["mtime_ns"])


def _close(record: Dict[str, Any], state: str, sha: str, note: str = "") -> Dict[str, Any]:
    record["state"] = state  # for the records below it, which are looked at next
    _drop_kept(record)
    left = bytecode.remove_compiled(record["path"])
    kept = {key: value for key, value in record.items() if key not in ("folder", "format")}
    write_json(os.path.join(record["folder"], "record.json"), kept)
    notes = [*([note] if note else []), *("stale bytecode stays: " + item for item in left)]
    return _report(record["id"], record["path"], state, sha, "; ".join(notes))
