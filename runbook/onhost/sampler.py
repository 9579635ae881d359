"""One observation of a launched server, from /proc and the keeper's files. No process is started, but for the GPUs' own tool."""

import os
import time
from typing import Any, Dict, Set, Tuple

from . import full_look, procs, tree
from .eyes import Eyes
from .log_gain import gain
from .ops_gpu import gpus
from .sent import Sent
from .sources import absent, blind, seen
from .subject import Subject

GPU_S = 25.0
MOST_PROCESSES = 500

Outcome = Dict[str, Any]


def sample(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """What `args` asks for: {run, server, pid, start, log, port, gpus, threads, full, folders, calls, kernel}, each optional.

    `full`: what the processes have open, sockets, locks, disks, and the growth of `folders`; with `calls` too in which system
    calls its threads wait. The engine sets `t` and `check`.
    With `chain`, a name for looks that resemble each other, and `has`, the number of the last one that the caller has of it: only what
    changed since then (see `sent`).
    """
    found = look(ctx, args)
    return SENT.answer(args["chain"], int(args.get("has") or 0), found) if args.get("chain") else (found, b"")


def look(ctx: Any, args: Dict[str, Any]) -> Dict[str, Any]:
    """The whole look."""
    now = time.time()
    found: Dict[str, Any] = {
        "t": now,
        "host_t": now,
        "host": os.uname().nodename,
        "boot_id": procs.boot_id(),
        "server": args.get("server") or "",
    }
    with EYES.lock:
        found.update(_of_server(ctx, args, now))
    if args.get("log"):
        found["log"] = gain(args["log"])
    if args.get("gpus"):
        found["gpus"] = _gpus(ctx)
    found["pressure"] = pressure()
    return found


def _of_server(ctx: Any, args: Dict[str, Any], now: float) -> Dict[str, Any]:
    """What is told by the process table and what follows from it."""
    if not (args.get("pid") or args.get("port") or args.get("kernel")):
        return {}
    EYES.forget()
    found: Dict[str, Any] = {}
    server = (int(args.get("pid") or 0), int(args.get("start") or 0))
    table = EYES.table.read(None if args.get("full") or server not in EYES.trees else EYES.trees[server])
    found["gpu_tool"] = _gpu_tool(table)
    ours: Set[int] = set()
    if args.get("pid"):
        subject = Subject(ctx, args, table)
        ours = EYES.trees[server] = subject.pids()
        hidden = subject.hidden()
        found["exit"] = hidden or subject.exit()
        found.update({"processes": hidden} if hidden else _processes(table, ours, args, now))
    if args.get("port"):
        found["listeners"] = _listeners(ctx, args, table, ours)
    if args.get("kernel"):
        found["kernel"] = EYES.kernel.since(server[1])
    return found


OPS = {"sample": sample}
EYES = Eyes()
SENT = Sent()


def _processes(table: tree.Table, pids: Set[int], args: Dict[str, Any], now: float) -> Dict[str, Any]:
    if not pids:
        return {"processes": absent("no process of it is left")}
    shown = sorted((table[pid] for pid in pids), key=lambda stat: (stat.start, stat.pid))[:MOST_PROCESSES]
    rows = EYES.cheap(sorted(shown), bool(args.get("threads")))
    found: Dict[str, Any] = {"processes": seen(rows), "left_out": max(0, len(pids) - MOST_PROCESSES)}
    if args.get("full"):
        log = args["log"]["path"] if args.get("log") else ""
        found.update(full_look.look(EYES, rows, table, args.get("folders") or (), log, now, bool(args.get("calls"))))
    return found


def _listeners(ctx: Any, args: Dict[str, Any], table: tree.Table, ours: Set[int]) -> Outcome:
    rows = EYES.ports.look(int(args["port"]), procs.visible(table, ctx.scope), ours, EYES.holders)
    return seen(rows) if rows else absent("nothing listens on port %d" % int(args["port"]))


def _gpus(ctx: Any) -> Outcome:
    report = gpus(ctx, {"limit_s": GPU_S}, b"")[0]
    if report["missing"]:
        return absent(report["blind"] or "there is no GPU tool on this host")
    if report["blind"]:
        return blind(report["blind"])
    return seen(report["gpus"]) if report["gpus"] else absent("the driver's tool lists no GPU")


def _gpu_tool(table: tree.Table) -> Outcome:
    """A tool of the driver that is under way, whoever started it: first one that waits in the driver, then the oldest."""
    tools = [procs.same(stat.pid, stat.start) for stat in table.values() if stat.comm == "nvidia-smi"]
    alive = [stat for stat in tools if stat is not None and stat.state not in "ZX"]
    if not alive:
        return absent("none is under way")
    stat = min(alive, key=lambda stat: (stat.state != "D", stat.start))
    wchan = (procs.read_bytes("/proc/%d/wchan" % stat.pid, 128) or b"").decode("ascii", "replace")
    return seen({"pid": stat.pid, "state": stat.state, "age_s": round(procs.age_s(stat), 1), "wchan": wchan})


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
