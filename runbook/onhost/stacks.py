"""Stacks of the processes that are asked for, side by side, bounded in all; no process is paused.

py-spy where it is there, may read, and no thread is in D state (a reader of its memory could wait with it); else the fault handler, only
where a launch with `dumps: full` armed it and the process still catches its signal; else each thread's kernel wait channel, which needs
no right but that of its own user. `note` then says why nothing better.
"""

import functools
import os
import stat
import time
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import fault_stacks, files, procs, py_spy, source_notes
from .errors import OpError
from .sources import absent, blind, seen
from .together import together

TOTAL_S = 8.0
EACH_S = 5.0
MOST_TARGETS = 64
SETTLE_S = 0.05
D_LOOKS = 3  # a healthy disk read is in D state for a moment too
MOST_THREADS = 200  # of one process
MOST_BINARY = 64 << 20


class Target(NamedTuple):
    """One process of the question."""

    pid: int
    start: int
    rank: Optional[int]


class Look(NamedTuple):
    """What came of one target: stacks, or why there are none; `gone` when it does not live; `wants` when py-spy would help."""

    stacks: List[Dict[str, Any]]
    problem: str = ""
    gone: bool = False
    wants: bool = False


def stacks(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """`args`: {targets: [[pid, start, rank or null], …], look, limit_s}. Answers {found, missing, machine, wants_py_spy}."""
    targets = [Target(int(pid), int(start), rank) for pid, start, rank in args["targets"]]
    looks = look_at(ctx, targets, min(TOTAL_S, float(args.get("limit_s", TOTAL_S))))
    number = int(args.get("look", 1))
    rows = [dict(row, look=number) for look in looks for row in look.stacks]
    wants = any(look.wants for look in looks)
    missing = problems(targets, looks) if rows else []
    return {"found": _outcome(targets, looks, rows), "missing": missing, "machine": os.uname().machine, "wants_py_spy": wants}, b""


def put_py_spy(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Keep a py-spy that the controller sends (`blob`: zlib) in our state folder. `machine` must be this host's."""
    if args["machine"] != os.uname().machine:
        raise OpError("unsupported", "that py-spy is for %s, and this host is %s" % (args["machine"], os.uname().machine))
    unpacked = zlib.decompressobj().decompress(blob, MOST_BINARY)
    path = py_spy.own_path(ctx.state_dir)
    files.make_private(os.path.dirname(path))
    files.atomic_write(path, unpacked, stat.S_IRWXU)
    return {"path": path, "size": len(unpacked)}, b""


OPS = {"stacks": stacks, "put_py_spy": put_py_spy}


def look_at(ctx: Any, targets: List[Target], limit_s: float) -> List[Look]:
    """Each target's look, in order; one that is late is told as such."""
    deadline = time.monotonic() + limit_s
    left_out = [Look([], "left out: more than %d processes" % MOST_TARGETS) for _ in targets[MOST_TARGETS:]]
    tasks = [functools.partial(_look, ctx, target, deadline - 2 * SETTLE_S) for target in targets[:MOST_TARGETS]]
    late = Look([], "no answer in time")
    return together(tasks, deadline, late, lambda error: Look([], "%s: %s" % (type(error).__name__, error))) + left_out


def _outcome(targets: List[Target], looks: List[Look], rows: List[Dict[str, Any]]) -> Dict[str, Any]:
    if rows:
        return seen(rows)
    if all(look.gone for look in looks):
        return absent("no process of it is left")
    return blind("; ".join(problems(targets, looks)[:8]))


def problems(targets: List[Target], looks: List[Look]) -> List[str]:
    """Why there are no stacks of some living processes."""
    return ["pid %d: %s" % (targets[at].pid, look.problem) for at, look in enumerate(looks) if look.problem and not look.gone]


def _look(ctx: Any, target: Target, deadline: float) -> Look:
    if not procs.is_alive(target.pid, target.start) or not procs.is_visible(target.pid, ctx.scope):
        return Look([], "it is gone", gone=True)
    note, wants = "", False
    if _waits_in_kernel(target.pid):
        note = "a thread of it is in D state: its memory is not read, since the reader could wait with it"
    elif not py_spy.has_python(target.pid):
        note = "it runs no Python"
    else:
        tool = py_spy.find(target.pid, ctx.state_dir)
        left_s = deadline - time.monotonic()
        found = py_spy.dump(tool, target.pid, min(EACH_S, max(SETTLE_S, left_s)), ctx) if tool else "no py-spy on this host: " + py_spy.NEXT
        wants = tool is None
        if isinstance(found, list) and procs.same(target.pid, target.start):
            again = functools.partial(_with_objects, ctx, tool, target.pid, deadline)
            return Look([_row(target, "py-spy", **thread) for thread in source_notes.add(target.pid, found, again)])
        note = found if isinstance(found, str) else "it ended while it was looked at"
        printed = fault_stacks.dump(target.pid, target.start, max(SETTLE_S, deadline - time.monotonic()))
        if isinstance(printed, list):
            return Look([_row(target, "faulthandler", **thread) for thread in py_spy.thinned(printed)])
    rows = wait_channels(target, note)
    return (
        Look(rows, wants=wants)
        if rows
        else Look([], "%s; its wait channels are not ours to read: %s" % (note, _rights(target.pid)), wants=wants)
    )


def _with_objects(ctx: Any, tool: Optional[str], pid: int, deadline: float) -> Any:
    return py_spy.dump(tool or py_spy.NAME, pid, min(EACH_S, max(SETTLE_S, deadline - time.monotonic())), ctx, objects=True)


def _rights(pid: int) -> str:
    ids = procs.uids(pid)
    return "look as its user, by `via: sudo -n -u %s`" % procs.user_name(ids[1]) if ids else "look as root, by `via: sudo -n`"


def _waits_in_kernel(pid: int) -> bool:
    """Whether some thread stays in D state over a few looks."""
    stuck = _blocked(pid)
    for _ in range(D_LOOKS - 1):
        if not stuck:
            return False
        time.sleep(SETTLE_S)
        stuck &= _blocked(pid)
    return bool(stuck)


def _blocked(pid: int) -> Set[int]:
    return {stat.pid for stat in _threads(pid) if stat.state == "D"}


def _threads(pid: int) -> List[procs.Stat]:
    """Its threads, main one first; here a thread's own id stands in `pid`."""
    folder = "/proc/%d/task" % pid
    try:
        tids = procs.main_first(pid, map(int, os.listdir(folder)))
    except OSError:
        return []
    raw = (procs.read_bytes("%s/%d/stat" % (folder, tid), 4096) for tid in tids[:MOST_THREADS])
    return [procs.parse_stat(text) for text in raw if text]


def wait_channels(target: Target, note: str) -> List[Dict[str, Any]]:
    """One frame a thread: where it waits in the kernel, or that it runs. Threads whose channel is hidden from us are left out."""
    rows = []
    for thread in _threads(target.pid):
        raw = procs.read_bytes("/proc/%d/task/%d/wchan" % (target.pid, thread.pid), 4096) or b"0"
        wchan = raw.decode("ascii", "replace").strip()
        frame = wchan if wchan != "0" else "running" if thread.state == "R" else ""
        if frame:
            main = thread.pid == target.pid
            more = {"note": note} if main else {}
            rows.append(_row(target, "wchan", tid=thread.pid, thread=thread.comm, main=main, frames=[frame], **more))
    return py_spy.thinned(rows)


def _row(target: Target, source: str, **thread: Any) -> Dict[str, Any]:
    return dict({"pid": target.pid, "rank": target.rank, "source": source}, **thread)
