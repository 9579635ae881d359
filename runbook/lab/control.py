"""Start, stop and look at the lab. The daemon is `runbook.lab.server`; its folder is $XDG_STATE_HOME/runbook/lab.

Every function can be called at any time, from several processes: a lock on the state folder lets one act, the others find it done.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runbook.lab import processes
from runbook.lab.processes import Process
from runbook.model import extras

EXTRA = ("asyncssh", "torch", "safetensors", "setproctitle", "starlette", "uvicorn")
START_S = 30.0


class LabError(Exception):
    """What went wrong and, as `hint`, what to do; `exit_code` for the command line."""

    def __init__(self, summary: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint
        self.exit_code = exit_code


class Lab(NamedTuple):
    """lab.json: where the daemon listens, how to log in, which process it is, and the home that its commands start in."""

    host: str
    port: int
    user: str
    key: str
    known_hosts: str
    pid: int
    start: int
    home: str

    @property
    def daemon(self) -> Process:
        """The daemon's process."""
        return Process(self.pid, self.start)


def folder(env: Mapping[str, str] = os.environ) -> Path:
    """The lab's folder on this machine."""
    state = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "runbook" / "lab"


def current() -> Lab | None:
    """The lab that is up; None when there is none, also when its file is a dead daemon's."""
    lab = _announced()
    return lab if lab is not None and processes.alive(lab.daemon) else None


def ensure_up() -> Lab:
    """The lab, started if need be. Raises LabError."""
    return current() or up()


def up() -> Lab:
    """Start the lab unless it is up. Raises LabError."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise LabError(f"the lab needs {', '.join(missing)}", f"{extras.how('lab')} (the CPU build of torch is enough)", exit_code=2)
    with _lock():
        lab = current()
        if lab is None:
            _clear()
            lab = _start()
    return lab


def down() -> list[str]:
    """End the lab and all below it, remove its folder; answers what was ended. Raises LabError when something is left."""
    if not folder().exists():
        return []
    with _lock():
        return _clear()


def status() -> dict[str, Any]:
    """Plain data: state up or down, and for a lab that is up where it is and what runs on it."""
    lab = current()
    if lab is None:
        return {"state": "down", "dir": str(folder())}
    running = [{"pid": process.pid, "title": process.title} for process in processes.below(lab.daemon)]
    here = {"state": "up", "dir": str(folder()), **lab._asdict(), "ssh": ssh_argv(lab)}
    return {**here, "fault": fault(lab), "processes": running}


def set_fault(lab: Lab, name: str) -> None:
    """Servers started on the lab from now on have this fault; `none` for none. Raises LabError for a name that does not exist."""
    from runbook.lab.faults import NAMES

    if name not in (*NAMES, "none"):
        raise LabError(f"no fault `{name}`", f"one of {', '.join(NAMES)}, or `none`", exit_code=2)
    file = Path(lab.home) / "fault"
    file.unlink(missing_ok=True)
    if name != "none":
        file.write_text(name + "\n")


def fault(lab: Lab) -> str | None:
    """The fault that the lab's servers are started with."""
    file = Path(lab.home) / "fault"
    return file.read_text().strip() if file.is_file() else None


def ssh_argv(lab: Lab, *command: str) -> list[str]:
    """The command line that logs in with OpenSSH."""
    options = ["-F", "none", "-o", f"UserKnownHostsFile={lab.known_hosts}", "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"]
    return ["ssh", *options, "-i", lab.key, "-p", str(lab.port), f"{lab.user}@{lab.host}", *command]


def _announced() -> Lab | None:
    try:
        return Lab(**json.loads((folder() / "lab.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None  # no file, or one that a dead daemon left half-made: both mean that no lab is up


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One at a time, by a lock on the folder above the lab's: no file of ours stays."""
    parent = folder().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise LabError(f"the lab's state folder cannot be used: {error}", "set XDG_STATE_HOME to a folder that you can write to") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _start() -> Lab:
    place = folder()
    place.mkdir(mode=0o700)
    with open(place / "daemon.log", "wb") as log:
        argv = [sys.executable, "-m", "runbook.lab.server", str(place)]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        child = subprocess.Popen(argv, **streams, start_new_session=True, cwd="/", env=_daemon_env())
    processes.wait(lambda: current() is not None or child.poll() is not None, START_S)
    lab = current()
    if lab is not None:
        return lab
    said = (place / "daemon.log").read_text(errors="replace").strip().splitlines()
    state = "did not answer" if child.poll() is None else f"ended with status {child.returncode}"
    child.kill()
    child.wait()
    shutil.rmtree(place, ignore_errors=True)
    raise LabError(f"the lab's daemon {state}" + (f": {said[-1]}" if said else ""), "run `runbook lab up` again; if it repeats, report it")


def _daemon_env() -> dict[str, str]:
    """Ours, with this package importable even when it is run from a source tree."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}


def _clear() -> list[str]:
    """End the announced daemon and everything of it, living or left by a dead one, then remove the folder."""
    lab = _announced()
    ended: list[str] = []
    if lab is not None:
        # Until nothing is below the daemon: what is ended may have started something, and orphans fall to the daemon.
        while found := processes.below(lab.daemon):
            ended += _end(found)
        ended += _end([lab.daemon] if processes.alive(lab.daemon) else [])
        ended += _end(processes.marked(lab.daemon.scope))
    shutil.rmtree(folder(), ignore_errors=True)
    if folder().exists():
        raise LabError(f"{folder()} could not be removed", f"remove it by hand: rm -r {folder()}")
    return ended


def _end(found: list[Process]) -> list[str]:
    names = [f"{process.title or '?'} (pid {process.pid})" for process in found]
    left = processes.end(found)
    if left:
        names = [f"{process.title or '?'} (pid {process.pid})" for process in left]
        raise LabError(f"could not end {', '.join(names)}", "end it yourself, then `runbook lab down` again")
    return names
