"""GPU memory and who holds it: the driver's tool and the open device files."""

import glob
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import gpu_read, procs
from .gpu_tool import ToolLock, find_tool
from .ops_proc import gpu_devices


def gpus(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Each GPU, or those of `indices`: memory in bytes, load, faults, holders. `limit_s` bounds both questions together."""
    began = time.monotonic()
    report: Dict[str, Any] = {"gpus": [], "blind": "", "missing": False}
    tool = find_tool(procs.own_environ().get("PATH"))
    if tool is None:
        report["missing"] = True
        report["blind"] = "there is no nvidia-smi in PATH on this host"
    else:
        report.update(look(ctx, tool, args.get("indices"), began + float(args.get("limit_s", 60.0))))
    report["seconds"] = time.monotonic() - began
    return report, b""


OPS = {"gpus": gpus}
_taken: Dict[str, Tuple[str, ...]] = {}
"""Of each tool's path which of MORE_FIELDS it answered last: that is asked first, so that a look is one question."""


def look(ctx: Any, tool: str, indices: Optional[List[int]], deadline: float) -> Dict[str, Any]:
    """`{gpus}` or `{blind}` from the tool at this path."""
    lock = ToolLock(tool)
    try:
        busy = lock.acquire(deadline, ctx)
        if busy:
            return {"blind": busy}
        for more in sorted(gpu_read.MORE_FIELDS, key=lambda one: one != _taken.get(tool)):
            memory = lock.run(gpu_read.gpu_question(tool, more), deadline, ctx)
            if memory.blind or not gpu_read.refused(*memory[:3]):
                break
        if more and not memory.blind:
            _taken[tool] = more
        found: Dict[str, Any] = {"blind": memory.blind} if memory.blind else gpu_read.read_gpus(*memory[:3])
        if "blind" in found:
            return found
        answer = lock.run(gpu_read.app_question(tool), deadline, ctx)
    finally:
        lock.close()
    apps: Dict[str, Any] = {"blind": answer.blind} if answer.blind else gpu_read.read_apps(*answer[:3])
    listed = [gpu["index"] for gpu in found["gpus"]]
    missing = sorted(set(indices or ()) - set(listed))
    if missing:
        return {"blind": "nvidia-smi lists no GPU %s; it lists %s" % (missing, listed)}
    faults = found["faults"] + (["holders not named: " + apps["blind"]] if "blind" in apps else [])
    wanted = [dict(gpu, faults=faults) for gpu in found["gpus"] if indices is None or gpu["index"] in indices]
    name_holders(wanted, apps.get("apps", []), procs.visible(procs.process_table(), ctx.scope))
    return {"gpus": wanted}


def name_holders(gpus: List[Dict[str, Any]], apps: List[Dict[str, Any]], table: Dict[int, procs.Stat]) -> None:
    """Add `holders` to each GPU: those that the tool lists, and those that only an open device file gives away."""
    devices = device_holders(table)
    minors = device_minors()
    for gpu in gpus:
        used = {app["pid"]: app["used"] for app in apps if app["uuid"] == gpu["uuid"]}
        pids = set(used) | devices.get(minors.get(gpu["uuid"], gpu["index"]), set())
        gpu["holders"] = [holder(pid, used.get(pid), table) for pid in sorted(pids)]


def device_holders(table: Dict[int, procs.Stat]) -> Dict[int, Set[int]]:
    """Device minor number -> pids that hold its file open."""
    holders: Dict[int, Set[int]] = {}
    if glob.glob("/dev/nvidia[0-9]*"):
        for pid in table:
            for minor in gpu_devices(pid):
                holders.setdefault(minor, set()).add(pid)
    return holders


def device_minors() -> Dict[str, int]:
    """GPU uuid -> minor number of its device file; the tool's index is another order."""
    minors = {}
    for path in glob.glob("/proc/driver/nvidia/gpus/*/information"):
        found = gpu_read.read_minor((procs.read_bytes(path) or b"").decode("utf-8", "replace"))
        if found:
            minors[found[0]] = found[1]
    return minors


def holder(pid: int, used: Optional[int], table: Dict[int, procs.Stat]) -> Dict[str, Any]:
    """Who a holder is. A pid that is not in our table (another container's) has no title."""
    stat = table.get(pid)
    if stat is None:
        return {"pid": pid, "user": "", "title": "", "age_s": None, "used": used}
    ids = procs.uids(pid)
    return {
        "pid": pid,
        "user": procs.user_name(ids[1]) if ids else "",
        "title": procs.title_of(stat.comm, procs.cmdline(pid)),
        "age_s": procs.age_s(stat),
        "used": used,
    }
