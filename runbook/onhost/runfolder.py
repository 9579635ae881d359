"""A run's folder on the host: `STATE_DIR/runs/RUN/`, mode 0700. Its files are the truth; the keeper only acts on them.

lock                                 flock: one keeper is started at a time
keeper.json  keeper.sock             the keeper: pid, start, boot id, format; where it listens
renewed                              mtime: when a controller was last known to be alive
suspended.json                       {expires}: until then the keeper holds everything as it is
lease-HOST.json                      which GPUs of this host are this run's (`lease`)
ended.json                           what the keeper did on its own when no controller came back
launches/ID.json  ID.log  ID.ring.jsonl
undo/ID/record.json  original  HOW_TO_RESTORE.txt
probes/                              side files of probes
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from typing import Any, Dict, Iterator, List, Optional

from .errors import OpError
from .files import atomic_write, make_private

FORMAT = 1
GONE = ".gone-"
"""How the name of a run's folder begins while it is removed; no run's name can."""
MOST_JSON = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


def checked_name(text: str, what: str) -> str:
    """A run or item id that is safe as a file name; raises OpError bad_request."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise OpError("bad_request", "%s `%s` cannot be a file name" % (what, text), "use letters, digits and . _ @ : + -, at most 128")
    return text


def write_json(path: str, data: Dict[str, Any]) -> None:
    """A record in its format, synced."""
    atomic_write(path, json.dumps({"format": FORMAT, **data}).encode("ascii"), 0o600)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A record, or None when there is none. Raises OpError when it is not ours to read."""
    try:
        with open(path, "rb") as source:
            text = source.read(MOST_JSON)
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text.decode("utf-8"))
    except ValueError as error:
        raise OpError("failed", "%s is not JSON (%s)" % (path, error), "look at the file; its folder has what it is about") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise OpError("unsupported", "%s has format %s, not %d" % (path, found, FORMAT), "use the version of runbook that wrote it")
    return data


@contextlib.contextmanager
def locked(path: str, limit_s: float = 20.0) -> Iterator[None]:
    """Hold an exclusive flock on this file, which its holder may remove. Raises OpError busy when it could not be had in time."""
    deadline = time.monotonic() + limit_s
    while True:
        fd = _try_lock(path)
        if fd is not None:
            break
        if time.monotonic() > deadline:
            raise OpError("busy", "%s stayed locked for %.0f s" % (path, limit_s), "another runbook works there: try again")
        time.sleep(0.02)
    try:
        yield
    finally:
        os.close(fd)


def _try_lock(path: str) -> Optional[int]:
    """A locked descriptor; None when somebody holds it, or has just removed the file that we locked."""
    make_private(os.path.dirname(path))
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # the folder was removed at this moment
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


def undo_lock(state_dir: str) -> str:
    """The file whose lock every change of a patched file holds, over all runs."""
    return os.path.join(state_dir, "undo.lock")


def remove_if_empty(state_dir: str) -> None:
    """Leave no trace once the last run is gone: its folders are removed when nothing is in them."""
    with locked(undo_lock(state_dir)):
        try:
            os.rmdir(os.path.join(state_dir, "runs"))
        except FileNotFoundError:
            pass  # only the lock was made again
        except OSError:
            return  # another run lives there
        os.unlink(undo_lock(state_dir))
        shutil.rmtree(os.path.join(state_dir, "bin"), ignore_errors=True)  # tools that the controller sent for looking closer
        try:
            os.rmdir(state_dir)
        except OSError:
            pass  # it holds what is not a run's


@contextlib.contextmanager
def unless_damaged() -> Iterator[None]:
    """Leave out what cannot be read of one run: it must not stop all others. The doctor names it.

    A record of another version still raises: somebody knows what it says.
    """
    try:
        yield
    except OpError as error:
        if error.code == "unsupported":
            raise


def read_sound(path: str) -> Optional[Dict[str, Any]]:
    """A record; None also when it is damaged."""
    with unless_damaged():
        return read_json(path)
    return None


def run_names(state_dir: str) -> List[str]:
    """Names of the runs with a folder here, without those that are being removed and what is not ours."""
    try:
        with os.scandir(os.path.join(state_dir, "runs")) as entries:
            return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


class RunFolder:
    """Paths and plain files of one run. Nothing is created before `create`."""

    def __init__(self, state_dir: str, run: str) -> None:
        self.state_dir = state_dir
        self.run = checked_name(run, "run")
        self.path = os.path.join(state_dir, "runs", run)
        self.lock = os.path.join(self.path, "lock")
        self.keeper = os.path.join(self.path, "keeper.json")
        self.socket = os.path.join(self.path, "keeper.sock")
        self.renewed = os.path.join(self.path, "renewed")
        self.suspended = os.path.join(self.path, "suspended.json")
        self.ended = os.path.join(self.path, "ended.json")
        self.launches = os.path.join(self.path, "launches")
        self.undo = os.path.join(self.path, "undo")

    def create(self) -> None:
        """The folder and its parts, readable by its owner only."""
        for path in (self.path, self.launches, self.undo, os.path.join(self.path, "probes")):
            make_private(path)

    def exists(self) -> bool:
        """Whether this run left anything here."""
        return os.path.isdir(self.path)

    def renew(self) -> None:
        """A controller is alive now: timers and expiries count from here, a suspension is over."""
        os.close(os.open(self.renewed, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.utime(self.renewed)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.suspended)

    def last_renewal(self) -> float:
        """Unix time of the last renewal; that of the folder when there was none."""
        try:
            return os.stat(self.renewed).st_mtime
        except FileNotFoundError:
            return os.stat(self.path).st_mtime

    def expires(self) -> Optional[float]:
        """Until when the run is suspended; None when it is not."""
        data = read_json(self.suspended)
        return None if data is None else float(data["expires"])

    def launch_records(self) -> List[Dict[str, Any]]:
        """All launch records, in the order of their start."""
        records = []
        for name in _names(self.launches):
            record = read_json(os.path.join(self.launches, name)) if name.endswith(".json") else None
            if record is not None:
                records.append(record)
        return sorted(records, key=lambda record: record["started"])

    def launch_file(self, id: str, suffix: str = ".json") -> str:
        """Path of one of a launch's files."""
        return os.path.join(self.launches, checked_name(id, "launch") + suffix)

    def remove(self) -> None:
        """Take the whole folder away; what cannot go is an error with its path.

        It goes out of the way in one rename first: else somebody who waits for its lock would find half of it and go on there.
        """
        runs = os.path.dirname(self.path)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path, os.path.join(runs, "%s%d-%s" % (GONE, time.time_ns(), self.run)))
            for name in [name for name in _names(runs) if name.startswith(GONE)]:  # also what a killed helper did not finish
                _remove_tree(os.path.join(runs, name))
        except OSError as error:
            raise OpError("permission", "cannot remove %s: %s" % (error.filename, error.strerror), "remove it by hand") from None


def _remove_tree(path: str) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:  # another helper removes the same
        shutil.rmtree(path, ignore_errors=True)


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
