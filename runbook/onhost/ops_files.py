"""Files of the host: slices, atomic writes, hashes, names, marks; removal only of what is ours."""

import glob as globbing
import os
import shutil
import stat
from typing import Any, Dict, List, Tuple

from . import files, protect
from .errors import OpError, from_os_error

MOST_READ = 64 << 20
MOST_NAMES = 10_000


def read(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Up to `limit` bytes (at most 64 MiB) from `offset`; a negative offset counts from the end."""
    path = os.path.expanduser(args["path"])
    offset, limit = int(args.get("offset", 0)), int(args.get("limit", 1 << 20))
    if limit < 0:
        raise OpError("bad_request", "limit must not be negative")
    fd = files.open_regular(path)
    try:
        info = os.fstat(fd)
        begin = max(0, info.st_size + offset) if offset < 0 else offset
        data = _read_at(fd, begin, min(limit, MOST_READ))
    except OSError as error:
        raise from_os_error(error, "read `%s`" % path) from error
    finally:
        os.close(fd)
    facts = {"path": path, "inode": info.st_ino, "size": info.st_size, "mode": stat.S_IMODE(info.st_mode), "mtime": info.st_mtime}
    return dict(facts, offset=begin), data


def _read_at(fd: int, offset: int, limit: int) -> bytes:
    parts: List[bytes] = []
    while limit > 0:
        part = os.pread(fd, min(limit, 1 << 20), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        limit -= len(part)
    return b"".join(parts)


def write(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Replace or create a file with `blob` as one act. Folders below our own state folder are made, others are not."""
    path = os.path.expanduser(args["path"])
    protect.refuse_file(path, ctx.protect)
    folder = os.path.dirname(os.path.abspath(path))
    if _is_below(folder, ctx.state_dir) or os.path.realpath(folder) == os.path.realpath(ctx.state_dir):
        files.make_private(folder)
    files.atomic_write(path, blob, args.get("mode"))
    return {"size": len(blob)}, b""


def hash_file(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """sha256, size, mode and mtime of a file."""
    path = os.path.expanduser(args["path"])
    digest = files.sha256_file(path, ctx.cancelled)
    info = os.stat(path)
    return {"sha256": digest, "size": info.st_size, "mode": stat.S_IMODE(info.st_mode), "mtime_ns": info.st_mtime_ns}, b""


def glob(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[str], bytes]:
    """Files that match, sorted; `**` goes down. More than 10,000 are an error, not a part."""
    pattern = os.path.expanduser(args["pattern"])
    found = []
    for path in globbing.iglob(pattern, recursive=True):
        if os.path.isfile(path):
            found.append(path)
        if len(found) > MOST_NAMES or ctx.cancelled.is_set():
            raise OpError("unsupported", "`%s` matches more than %d files" % (args["pattern"], MOST_NAMES), "narrow the pattern")
    return sorted(found), b""


def marks(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Inode and size of each path; inode 0 where there is no file."""
    return {path: mark(os.path.expanduser(path)) for path in args["paths"]}, b""


def mark(path: str) -> Dict[str, int]:
    """Where a log stands now. Raises OpError when it may not be looked at: that is not absence."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"inode": 0, "size": 0}
    except OSError as error:
        raise from_os_error(error, "look at `%s`" % path) from error
    return {"inode": info.st_ino, "size": info.st_size}


def remove(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Remove a file or folder below our state folder; absence is fine."""
    path = os.path.abspath(os.path.expanduser(args["path"]))
    if not _is_below(path, ctx.state_dir):
        raise OpError("protected", "`%s` is not below %s" % (path, ctx.state_dir), "only what runbook made is removed by runbook")
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return {"removed": False}, b""
    except OSError as error:
        raise from_os_error(error, "remove `%s`" % path) from error
    return {"removed": True}, b""


def _is_below(path: str, folder: str) -> bool:
    """Whether the path, links in its folder resolved, lies within the folder."""
    parent = os.path.realpath(os.path.dirname(path))
    real = os.path.realpath(folder)
    return os.path.join(parent, os.path.basename(path)) != real and (parent + os.sep).startswith(real + os.sep)


OPS = {"read": read, "write": write, "hash": hash_file, "glob": glob, "marks": marks, "remove": remove}
