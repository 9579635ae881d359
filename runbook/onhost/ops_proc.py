"""The process table as the controller sees it, with what must be left alone."""

import glob
import json
import os
import re
from typing import Any, Dict, List, Optional, Set, Tuple

from . import procs
from .kill import kill
from .listeners import listeners
from .protect import Rules

_GPU_DEVICE = re.compile(r"/dev/nvidia(\d+)$")


def processes(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """Every visible process. `run` is the caller's own run, whose processes are not protected from it."""
    everything = procs.process_table()
    facts = Surroundings(ctx.state_dir, args.get("run") or "", everything, ctx.protect)
    shown = procs.visible(everything, ctx.scope)
    rows = (row(stat, facts) for _, stat in sorted(shown.items()))
    return [found for found in rows if found is not None], b""


OPS = {"processes": processes, "kill": kill, "listeners": listeners}


class Surroundings:
    """What a row needs beyond its own process."""

    def __init__(self, state_dir: str, run: str, table: Dict[int, procs.Stat], rules: List[Dict[str, Any]]) -> None:
        self.run = run
        self.uptime = procs.uptime_s()
        self.ours = set(procs.ancestors(os.getpid(), table))
        self.keepers = live_keepers(state_dir)
        self.has_gpus = bool(glob.glob("/dev/nvidia[0-9]*"))
        self.rules = Rules(rules, table)
        self._users: Dict[int, str] = {}

    def user(self, uid: int) -> str:
        """Account name, looked up once."""
        if uid not in self._users:
            self._users[uid] = procs.user_name(uid)
        return self._users[uid]


def live_keepers(state_dir: str) -> Dict[str, int]:
    """Run id -> pid of each run's keeper that lives on this host now."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(state_dir), "runs", "*", "keeper.json")):
        raw = procs.read_bytes(path)
        try:
            record = json.loads(raw) if raw else {}
            pid, start = int(record["pid"]), int(record["start"])
        except (ValueError, KeyError, TypeError):
            continue  # half-written or of another format: then its run cannot be told from a dead one
        if procs.is_alive(pid, start):
            found[os.path.basename(os.path.dirname(path))] = pid
    return found


def row(stat: procs.Stat, facts: Surroundings) -> Optional[Dict[str, Any]]:
    """One process as plain data; None when it ended while we looked. What is not ours to read is null."""
    ids = procs.uids(stat.pid)
    if ids is None:
        return None
    raw = _careful(stat, procs.cmdline)
    marker = _careful(stat, lambda pid: procs.environ_value(pid, "RUNBOOK_RUN"))
    title, user, argv = procs.title_of(stat.comm, raw), facts.user(ids[1]), procs.split_cmdline(raw)
    return {
        "pid": stat.pid,
        "start": stat.start,
        "ppid": stat.ppid,
        "pgid": stat.pgid,
        "sid": stat.sid,
        "uid": ids[1],
        "user": user,
        "state": stat.state,
        "comm": stat.comm,
        "argv": argv,
        "title": title,
        "rss": stat.rss,
        "age_s": procs.age_s(stat, facts.uptime),
        "cwd": procs.read_link("/proc/%d/cwd" % stat.pid),
        "run": marker,
        "launch": marker and _careful(stat, lambda pid: procs.environ_value(pid, "RUNBOOK_LAUNCH")),
        "gpus": sorted(gpu_devices(stat.pid)) if facts.has_gpus else [],
        "protected": facts.rules.why(stat.pid, user, title, argv) or protection(stat, ids[1], marker, facts),
    }


def _careful(stat: procs.Stat, read: Any) -> Any:
    """A process in uninterruptible sleep may hold the lock that its cmdline and environ need."""
    return procs.bounded(lambda: read(stat.pid)) if stat.state == "D" else read(stat.pid)


def gpu_devices(pid: int) -> Set[int]:
    """Minor numbers of the GPU device files that it holds open."""
    matches = (_GPU_DEVICE.match(target) for _, target in procs.open_files(pid))
    return {int(match.group(1)) for match in matches if match}


def protection(stat: procs.Stat, uid: int, marker: Optional[str], facts: Surroundings) -> Optional[str]:
    """Why a process must be left alone; None when it need not be."""
    if stat.pid == 1:
        return "pid1"
    if stat.pid in facts.ours:
        return "ancestry"
    if stat.comm.startswith("sshd"):
        return "sshd"
    if stat.pid in facts.keepers.values():
        return "keeper"
    if uid != os.geteuid():
        return "other_user"
    if marker and marker != facts.run and marker in facts.keepers:
        return "other_run"
    return None
