"""The one file of a patch: read safely, refused early, replaced in one rename, or made anew where it was deleted."""

import contextlib
import errno
import hashlib
import os
import stat
from typing import Any, Dict, Iterator, Set, Tuple

from .errors import OpError
from .files import sync_folder

MOST_SOURCE = 64 << 20


def digest(data: bytes) -> str:
    """sha256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _denied(path: str, why: str, hint: str) -> OpError:
    return OpError("permission", "cannot patch %s: %s" % (path, why), hint)


def read(path: str) -> Tuple[bytes, os.stat_result]:
    """Bytes and status of a regular file, both of the same open file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OpError("not_found", "%s does not exist" % path, "check the path or the module's name") from None
    except NotADirectoryError:
        raise OpError("not_found", "%s does not exist: a part of its path is a file now" % path, "check the path") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OpError("unsupported", "%s is a symbolic link, to %s" % (path, _points_to(path)), "name the file itself") from None
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


def _points_to(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return "an unknown place"


def check_rights(path: str, status: os.stat_result) -> None:
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


def replace(record: Dict[str, Any], data: bytes, mtime_ns: int) -> None:
    """Give the file these bytes, with the mode, owner and extended attributes of the record, in one rename."""
    with _draft(record, data, mtime_ns) as temp:
        os.replace(temp, record["path"])


def make_anew(record: Dict[str, Any], data: bytes) -> None:
    """Put a deleted file back. Raises FileExistsError, and changes nothing, when somebody has just made one of its name."""
    if record.get("kept") and still_original(record):
        os.link(record["kept"], record["path"])  # one file with its other names again
        sync_folder(os.path.dirname(record["path"]))
        return
    with _draft(record, data, record["mtime_ns"]) as temp:
        os.link(temp, record["path"])


def still_original(record: Dict[str, Any]) -> bool:
    """Whether the held inode is unchanged: somebody may have written to it under another of its names."""
    try:
        data, status = read(record["kept"])
    except OpError:
        return False
    return digest(data) == record["sha256_before"] and status.st_mtime_ns == record["mtime_ns"]


def is_there(path: str) -> bool:
    """Whether something has this name. Raises OSError when that cannot be seen: a folder that may not be entered is not gone."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_removed(record: Dict[str, Any]) -> bool:
    """Whether a file that is not there was deleted. False: the disk that it lies on may only not be mounted now.

    A folder's device tells the file system, and what is left of the path must be on the one that the patch was written to.
    """
    nearest = os.path.dirname(record["path"])
    while not os.path.isdir(nearest):
        nearest = os.path.dirname(nearest)
    return os.stat(nearest).st_dev == record.get("device")


@contextlib.contextmanager
def _draft(record: Dict[str, Any], data: bytes, mtime_ns: int) -> Iterator[str]:
    """A whole file beside the real one, for one act that gives it its name."""
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
        yield temp
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
    sync_folder(os.path.dirname(path))


def _copy_attributes(path: str, fd: int) -> None:
    """Carry extended attributes (ACLs, labels) over, as far as this user and file system may."""
    try:
        names = os.listxattr(path)
    except OSError:
        return  # the file system has none, or the file is gone
    for name in names:
        with contextlib.suppress(OSError):  # security.* is root's; the folder's default stands then
            os.setxattr(fd, name, os.getxattr(path, name))
