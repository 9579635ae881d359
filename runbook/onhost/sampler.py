"""One observation of a launched server, from /proc and the keeper's files. No process is started, but for the GPUs' own tool."""

import os
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import full_look, keeper_link, procs, tree
from .eyes import Eyes
from .listeners import listeners
from .log_gain import gain
from .ops_gpu import gpus
from .runfolder import RunFolder, read_json
from .sources import absent, blind, seen

RECORD_S = 0.2  # from a child's death to its record
GPU_S = 25.0
MOST_PROCESSES = 500

Outcome = Dict[str, Any]


def sample(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """What `args` asks for: {run, server, pid, start, log, port, gpus, threads, full, folders, kernel}, each optional.

    `full`: what the processes have open, sockets, locks, disks, and the growth of `folders`. The engine sets `t` and `check`.
    """
    now = time.time()
    found: Dict[str, Any] = {
        "t": now,
        "host_t": now,
        "host": os.uname().nodename,
        "boot_id": procs.boot_id(),
        "server": args.get("server") or "",
    }
    ours: Set[int] = set()
    if args.get("pid"):
        subject = Subject(ctx, args)
        ours = subject.pids()
        found["exit"] = subject.exit()
        found.update(_processes(subject.table, ours, args, now))
    if args.get("log"):
        found["log"] = gain(args["log"])
    if args.get("port"):
        found["listeners"] = _listeners(ctx, args, ours)
    if args.get("gpus"):
        found["gpus"] = _gpus(ctx)
    if args.get("kernel"):
        found["kernel"] = EYES.kernel.since(int(args.get("start") or 0))
    found["pressure"] = pressure()
    return found, b""


OPS = {"sample": sample}
EYES = Eyes()


class Subject:
    """The server in question: its launch record when its run has one, its processes."""

    def __init__(self, ctx: Any, args: Dict[str, Any]) -> None:
        self.pid, self.start, self.id = int(args["pid"]), int(args.get("start") or 0), args.get("server") or ""
        self.folder: Optional[RunFolder] = RunFolder(ctx.state_dir, args["run"]) if args.get("run") else None
        self.table = procs.process_table()

    def pids(self) -> Set[int]:
        """All of the launch: tree, session, orphans at its keeper; zombies too."""
        record = {"id": self.id, "pid": self.pid, "start": self.start}
        keeper = keeper_link.living(self.folder) if self.folder else None
        others = self.folder.launch_records() if self.folder else []
        return tree.with_zombies(record, self.table, keeper["pid"] if keeper else None, others)

    def _record(self) -> Optional[Dict[str, Any]]:
        if self.folder is None or not self.id:
            return None
        record = read_json(self.folder.launch_file(self.id))
        return record if record is not None and (record["pid"], record["start"]) == (self.pid, self.start) else None

    def exit(self) -> Outcome:
        """How the main process ended, as its parent saw it. Absent while it lives."""
        if procs.is_alive(self.pid, self.start):
            return absent("it lives")
        deadline = time.monotonic() + RECORD_S
        record = self._record()
        while record is not None and "ended" not in record and time.monotonic() < deadline:
            time.sleep(0.01)
            record = self._record()
        if record is None:
            return blind("it is gone, and no keeper was its parent")
        if "ended" not in record or "exit_unknown" in record:
            return blind(record.get("exit_unknown", "it is gone, and its keeper has not said how"))
        return seen(
            {
                "code": record.get("exit"),
                "signal": record.get("signal"),
                "lived_s": record["ended"] - record["started"],
                "oom_killed": record["oom_killed"],
                "oom_source": record.get("oom_source", ""),
                "killed_by_us": record["stopped_by"] is not None,
            }
        )


def _processes(table: tree.Table, pids: Set[int], args: Dict[str, Any], now: float) -> Dict[str, Outcome]:
    if not pids:
        return {"processes": absent("no process of it is left")}
    shown = [table[pid] for pid in sorted(pids)[:MOST_PROCESSES]]
    with EYES.lock:
        EYES.forget()
        rows = EYES.cheap(shown, bool(args.get("threads")))
        found = {"processes": seen(rows)}
        if args.get("full"):
            log = args["log"]["path"] if args.get("log") else ""
            found.update(full_look.look(EYES, rows, table, args.get("folders") or (), log, now))
    return found


def _listeners(ctx: Any, args: Dict[str, Any], ours: Set[int]) -> Outcome:
    rows: List[Dict[str, Any]] = listeners(ctx, {"port": args["port"]}, b"")[0]
    if not rows:
        return absent("nothing listens on port %d" % int(args["port"]))
    return seen([{**row, "ours": row["pid"] in ours} for row in rows])


def _gpus(ctx: Any) -> Outcome:
    report = gpus(ctx, {"limit_s": GPU_S}, b"")[0]
    if report["missing"]:
        return absent(report["blind"] or "there is no GPU tool on this host")
    if report["blind"]:
        return blind(report["blind"])
    return seen(report["gpus"]) if report["gpus"] else absent("the driver's tool lists no GPU")


def pressure() -> Outcome:
    """Share of the last 10 s in which some task waited, percent."""
    shares = {}
    for name in ("cpu", "io", "memory"):
        raw = procs.read_bytes("/proc/pressure/" + name, 4096)
        at = raw.find(b"avg10=") if raw else -1
        if raw is None or at < 0:
            return blind("/proc/pressure/%s cannot be read: the kernel has none, or this user may not" % name)
        shares[name] = float(raw[at + 6 :].split(None, 1)[0])
    return seen(shares)
