"""Files: atomic writing, private folders, identity."""

import errno
import os
import stat
import threading
from typing import Optional

from .errors import OpError, from_os_error


def state_dir(environ: Optional[dict] = None) -> str:
    """Where our files lie on this host: $XDG_STATE_HOME/runbook-host, else ~/.local/state/runbook-host. Not created here.

    Not `runbook`: there a controller keeps its transcripts, and a host may be its own controller.
    """
    env = os.environ if environ is None else environ
    base = env.get("XDG_STATE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "runbook-host")


def make_private(path: str) -> str:
    """The folder, made with its parents where it is missing, for our user only; one that is there must be ours. Returns it."""
    try:
        _make(path)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        failed = from_os_error(error, "make the folder `%s`" % path)
        failed.hint = "set XDG_STATE_HOME there to a folder that this account can write, for example by `via: env XDG_STATE_HOME=…`"
        raise failed from error
    if status.st_uid != os.geteuid():
        hint = "look who made it; `via: env XDG_STATE_HOME=…` names another place"
        raise OpError("permission", "the folder `%s` belongs to uid %d: nothing is written there" % (path, status.st_uid), hint)
    return path


def _make(path: str) -> None:
    """As makedirs, but the parents that it makes are private too."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        _make(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):  # made by another helper at this moment is fine
            raise


def stand_somewhere() -> None:
    """Leave a working directory that this account may not enter: `sudo -u` starts us in the home of who logged in."""
    for find in (os.getcwd, lambda: os.path.expanduser("~"), lambda: "/"):
        try:
            return os.chdir(find())
        except OSError:
            continue  # removed, or behind a folder that may not be entered


def private(path: str, flags: int) -> int:
    """An opener: a file that it makes is for our user only."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def sync_folder(path: str) -> None:
    """Make a rename or a removal in this folder outlast a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that have nothing to sync there (some FUSE)
            raise
    finally:
        os.close(fd)


def atomic_write(path: str, data: bytes, mode: Optional[int] = None) -> None:
    """Replace a file's content as one act: temporary file beside it, sync, rename, sync of the folder.

    A symlink's target is replaced, not the link. An existing file keeps its owner, and its mode unless `mode` is given; a new file
    gets `mode` or 0644 less the umask. Raises OpError; then the old file is untouched.
    """
    target = os.path.realpath(path)
    what = "write `%s`" % path
    try:
        old: Optional[os.stat_result] = os.stat(target)
    except FileNotFoundError:
        old = None
    except OSError as error:
        raise from_os_error(error, what) from error
    if old is not None:
        if not stat.S_ISREG(old.st_mode):
            raise OpError("unsupported", "%s: it is not a regular file" % what, "name the file itself")
        if not os.access(target, os.W_OK):
            raise OpError("permission", "%s: the file is read-only for us" % what, "make it writable for this user, or use `via: sudo -n`")
        if mode is None:
            mode = stat.S_IMODE(old.st_mode)
    try:
        _replace(target, data, mode, old)
    except OSError as error:
        raise from_os_error(error, what) from error


def _replace(target: str, data: bytes, mode: Optional[int], old: Optional[os.stat_result]) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, ".%s.%d.%s" % (name[:200], os.getpid(), os.urandom(4).hex()))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644 if mode is None else 0o600)
    try:
        try:
            write_all(fd, data)
            new = os.fstat(fd)
            if old is not None and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(fd, old.st_uid, old.st_gid)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)


def write_all(fd: int, data: bytes) -> None:
    """os.write until nothing is left."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_regular(path: str, most: int = 64 << 20) -> bytes:
    """A whole regular file. Raises OpError, also for one larger than `most` bytes or for a pipe or device, which could block."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > most:
            raise OpError("unsupported", "read `%s`: %d bytes are more than the %d that are read at once" % (path, size, most))
        with os.fdopen(os.dup(fd), "rb") as stream:
            return stream.read(most)
    finally:
        os.close(fd)


def open_regular(path: str) -> int:
    """A read-only descriptor of a regular file (links followed). Raises OpError."""
    what = "read `%s`" % path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise from_os_error(error, what) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OpError("unsupported", "%s: it is not a regular file" % what, "name the file itself")
    return fd


def sha256_file(path: str, cancelled: Optional[threading.Event] = None) -> str:
    """Hex digest of a regular file's bytes. Raises OpError, also when `cancelled` is set on the way."""
    import hashlib  # here: it loads a library of its own, and a helper begins without

    digest = hashlib.sha256()
    fd = open_regular(path)
    with os.fdopen(fd, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
            if cancelled is not None and cancelled.is_set():
                raise OpError("failed", "cancelled while reading `%s`" % path)
    return digest.hexdigest()
