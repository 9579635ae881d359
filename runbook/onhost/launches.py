"""A launch inside its keeper: started with a session of its own, watched, and its end written down.

starting ── exec fails ──> an OpError, nothing is left
   └──> live ── reaped ──> ended (exit or signal, max RSS, OOM kill, who ended it)
          └─ its keeper died: the next one watches it from outside; its exit status is unknown
"""

import os
import shutil
import stat
import subprocess
import time
from typing import Any, Dict, List, Optional, Set

from . import dumps, oom, procs
from .errors import OpError, from_os_error
from .ladder import signal_name
from .ring import Ring
from .runfolder import RunFolder, write_json
from .spawn import find_shell

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def command_of(spec: Dict[str, Any], env: Dict[str, str]) -> List[str]:
    """The argv to exec. Shell text and a prelude go through bash, else sh; with argv the shell is replaced by the command."""
    argv, shell, prelude = list(spec.get("argv") or ()), spec.get("shell") or "", spec.get("prelude") or ""
    if bool(argv) == bool(shell):
        raise OpError("bad_request", "a launch needs either argv or shell text", "write `command:` as a list or as text")
    if not shell and not prelude:
        return argv
    program = find_shell(env)
    text = "\n".join(part for part in (prelude, shell or 'exec "$@"') if part)
    return [program, "-c", text, program, *argv]


def open_log(path: str, mode: int = 0o644) -> int:
    """The log, for appending; `mode` of a new one. Raises OpError for one that cannot be a log."""
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise OpError("unsupported", "the log `%s` is not a regular file" % path, "choose another `log:`")
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    except OSError as error:
        raise from_os_error(error, "open the log `%s`" % path) from error


def start(folder: RunFolder, spec: Dict[str, Any], env: Dict[str, str]) -> "Launch":
    """Start what `spec` says and put it on record. Raises OpError; then nothing is left."""
    argv, log, cwd = command_of(spec, env), spec["log"] or folder.launch_file(spec["id"], ".log"), spec["cwd"]
    existed = os.path.exists(log)
    fd = open_log(log, 0o644 if spec["log"] else 0o600)
    try:
        before = os.fstat(fd)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, cwd=cwd, env=env, start_new_session=True)
    except (OSError, ValueError) as error:
        if not existed:
            os.unlink(log)
        raise _start_error(error, argv, env) from error
    finally:
        os.close(fd)
    if spec.get("no_core"):
        dumps.forbid_core(process.pid)
    process.returncode = 0  # the keeper's own wait4 collects it: keep subprocess from doing so
    record = {
        "id": spec["id"],
        "run": folder.run,
        "kind": spec["kind"],
        "pid": process.pid,
        "start": procs.start_ticks(process.pid) or 0,
        "sid": process.pid,
        "log": log,
        "log_inode": before.st_ino,
        "log_offset": before.st_size,
        "argv": argv,
        "cwd": cwd,
        "interpreter": interpreter_of(process.pid, argv[0]) or argv[0],
        "started": time.time(),
        "at_end": spec["at_end"],
        "ladder": list(spec["ladder"]),
        "suspend_for_s": spec["suspend_for_s"],
        "dump_env": spec.get("dump_env", {}),
        "token": spec.get("token", ""),
    }
    launch = Launch(folder, record)
    launch.save()
    return launch


def _start_error(error: Exception, argv: List[str], env: Dict[str, str]) -> OpError:
    if not isinstance(error, OSError):  # ValueError: a NUL byte in an argument or a name of the environment
        return OpError("bad_request", "cannot start %r: %s" % (argv[:1], error))
    named = os.fsdecode(error.filename or argv[0])
    found = from_os_error(error, "start `%s`" % named)
    hints = {
        "not_found": "it was looked for in PATH=%s" % env.get("PATH", os.defpath),
        "permission": "look at its mode and at the mount's options",
    }
    return OpError(found.code, found.message, hints.get(found.code, ""), {**found.data, "path": named})


def interpreter_of(pid: int, asked: str) -> Optional[str]:
    """The program that runs, under the name it was started by; of a shell that did not exec, its only child's.

    `asked` is the name that was to be started: one that ends at once has no argv left to read.
    """
    path = procs.read_link("/proc/%d/exe" % pid)
    if path is None or os.path.basename(path) not in SHELLS:
        return path and _as_started(pid, path, asked)
    below = [stat.pid for stat in procs.process_table().values() if stat.ppid == pid]
    inner = procs.read_link("/proc/%d/exe" % below[0]) if len(below) == 1 else None
    return _as_started(below[0], inner, "") if inner else path


def _as_started(pid: int, exe: str, asked: str) -> str:
    """A venv's python is a link: /proc/PID/exe shows its target, and by that name it would not find the venv's packages."""
    name = next(iter(procs.split_cmdline(procs.cmdline(pid))), asked)
    if "/" in name:
        found: Optional[str] = os.path.join(procs.read_link("/proc/%d/cwd" % pid) or "/", name)
    else:
        found = shutil.which(name, path=procs.environ_value(pid, "PATH")) if name else None
    return os.path.normpath(found) if found and os.path.realpath(found) == exe else exe


class Launch:
    """One live or ended launch of this keeper."""

    def __init__(self, folder: RunFolder, record: Dict[str, Any], adopted: bool = False) -> None:
        self.folder, self.record, self.adopted = folder, record, adopted
        self.counters = oom.look(record["pid"])
        self.pids: Set[int] = {record["pid"]}
        self._children = oom.Children(self.counters)
        self._members: Set[int] = set()
        self.ring = Ring(folder.launch_file(record["id"], ".ring.jsonl"))
        self.unsaved = False
        self._since = time.monotonic()

    @property
    def live(self) -> bool:
        """Whether its end is still to come."""
        return "ended" not in self.record

    @property
    def stops(self) -> bool:
        """Whether it has to be stopped when no controller comes back."""
        return self.live and self.record["at_end"] == "stop"

    def save(self) -> None:
        """Put the record on disk; `unsaved` until that has worked."""
        self.unsaved = True
        write_json(self.folder.launch_file(self.record["id"]), self.record)
        self.unsaved = False

    def note_kill(self, by: str) -> None:
        """Somebody of ours is about to end it: kill, expiry or undo. Only its end makes that `stopped_by`."""
        if self.live:
            self.record["kill_noted"] = by
            self.save()

    def look(self, members: Set[int]) -> None:
        """A regular look while it lives: the ring, the interpreter, and where its memory is accounted."""
        self.pids |= members
        lost, self._members = bool(self._members - members), members
        stat_now = procs.same(self.record["pid"], self.record["start"])
        if stat_now is None or stat_now.state in "ZX":
            return
        self.ring.add(stat_now, self.record["log"], len(members))
        counters = oom.look(self.record["pid"])
        self._children.note(counters, lost, time.monotonic())
        if counters.cgroup != self.counters.cgroup:  # it was moved: only its own cgroup's kills count
            self.counters = counters
        self.counters = self.counters._replace(host=counters.host)
        interpreter = interpreter_of(self.record["pid"], "")
        if interpreter and os.path.realpath(interpreter) != os.path.realpath(self.record["interpreter"]):
            self.record["interpreter"] = interpreter
            self.save()

    def finish(self, status: Optional[int], max_rss: Optional[int]) -> None:
        """Its end, from wait4; status None when it was not our child and nobody can know how it ended."""
        record = self.record
        record["ended"] = time.time()
        if status is None:
            record["exit_unknown"] = "its keeper had died: nobody saw its exit status"
        elif os.WIFSIGNALED(status):
            record["signal"] = signal_name(os.WTERMSIG(status))
        else:
            record["exit"] = os.WEXITSTATUS(status)
        record["max_rss"] = max_rss
        record["stopped_by"] = record.pop("kill_noted", None)
        record["oom_source"] = self._oom_source()
        record["oom_killed"] = bool(record["oom_source"])
        self.save()

    def _oom_source(self) -> str:
        if self.record.get("exit") == 0:
            return ""
        now, after, by_us = time.monotonic(), oom.again(self.counters), bool(self.record["stopped_by"])
        self._children.note(after, True, now)
        child = self._children.taken(now)
        return oom.source(self.record.get("signal"), by_us, self.counters, after, oom.victims(self._since), self.pids, child)
