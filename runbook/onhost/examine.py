"""What this account may see and do on this host, and what earlier runs left here: for `runbook doctor`. Changes nothing, leaves nothing."""

import os
import stat
from typing import Any, Dict, List, Optional, Tuple

from . import gpu_tool, keeper_link, kernel_log, lease, notices, patches, procs, py_spy, runfolder
from .errors import OpError

_NEED_PTRACE = 19  # CAP_SYS_PTRACE, include/uapi/linux/capability.h
_PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


def examine(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Rights, the GPU tool's place, the state folder and its disk, leases, runs."""
    return {
        "root": os.geteuid() == 0,
        "ptrace": ptrace(),
        "others": others(),
        "kernel_log": kernel(),
        "py_spy": py_spy.find(os.getpid(), ctx.state_dir) or "",
        "gpu_tool": gpu_tool.find_tool(os.environ.get("PATH")) or "",
        "gpu_devices": len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]),
        "state": state_folder(ctx.state_dir),
        "leases": [*lease.leases(ctx.state_dir), *lease.leases_elsewhere(ctx.state_dir)],
        "leases_alone": notices.problem(),
        "runs": runs(ctx.state_dir),
    }, b""


def ptrace() -> str:
    """Why stacks of other processes of this account cannot be read; empty when they can."""
    raw = procs.read_bytes(_PTRACE_SCOPE, 16)
    scope = int(raw) if raw and raw.strip().isdigit() else 0
    status = (procs.read_bytes("/proc/self/status", 8192) or b"").decode("ascii", "replace")
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if scope == 0 or (int(effective, 16) >> _NEED_PTRACE & 1 and scope < 3):
        return ""
    return "kernel.yama.ptrace_scope is %d" % scope


def others() -> str:
    """Why processes of other accounts cannot be looked into; empty when they can."""
    if not os.path.isdir("/proc/1"):
        return "/proc hides them (hidepid)"
    try:
        os.listdir("/proc/1/fd")
    except OSError as error:
        return "only root may: %s" % error.strerror
    return ""


def kernel() -> str:
    """Why the kernel's log cannot be read; empty when it can."""
    answer = kernel_log.KernelLog().since(0)
    return str(answer["reason"]) if answer["type"] == "blind" else ""


def state_folder(path: str) -> Dict[str, Any]:
    """The folder of our files: `problem` says why it cannot be used. Its disk is that of the nearest folder that exists."""
    nearest = path
    while not os.path.isdir(nearest) and os.path.dirname(nearest) != nearest:
        nearest = os.path.dirname(nearest)
    room = os.statvfs(nearest)
    return {
        "path": path,
        "problem": _problem(path, nearest, room),
        "free": room.f_bavail * room.f_frsize,
        "total": room.f_blocks * room.f_frsize,
        "free_inodes": room.f_favail if room.f_files else None,
    }


def _problem(path: str, nearest: str, room: os.statvfs_result) -> str:
    if room.f_flag & os.ST_RDONLY:
        return "its file system is read-only"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return "%s is not writable for this account" % nearest
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) and not os.path.isdir(path):
            return "it is no folder"
        if os.stat(path).st_uid != os.geteuid():
            return "it belongs to uid %d" % os.stat(path).st_uid
    return ""


def runs(state_dir: str) -> List[Dict[str, Any]]:
    """Runs with files here: whether somebody keeps them, what of theirs still lives, how many files still carry their patch."""
    return [_run(runfolder.RunFolder(state_dir, name)) for name in runfolder.run_names(state_dir)]


def _run(folder: runfolder.RunFolder) -> Dict[str, Any]:
    row: Dict[str, Any] = {"run": folder.run, "path": folder.path, "keeper": False, "live": [], "patched": [], "problem": ""}
    try:
        runfolder.read_json(lease.path_of(folder))
        row["keeper"] = keeper_link.living(folder) is not None
        row["live"] = [_launch(record) for record in folder.launch_records() if _lives(record)]
        row["patched"] = [record["path"] for record in patches.open_records(folder.state_dir, folder.run)]
    except (OpError, OSError, KeyError, TypeError) as error:
        row["problem"] = str(error)
    return row


def _lives(record: Dict[str, Any]) -> bool:
    return "ended" not in record and procs.is_alive(record["pid"], record["start"])


def _launch(record: Dict[str, Any]) -> Dict[str, Optional[Any]]:
    return {"id": record["id"], "pid": record["pid"], "title": procs.title(record["pid"])}


OPS = {"examine": examine}
