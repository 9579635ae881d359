"""Evidence items about the host: GPUs, kernel log, the server's log, shared memory, disks and memory."""

import functools
import json
import os
import stat
import time
from typing import Any, List, Tuple

from . import careful, files, kernel_log, procs
from .errors import OpError
from .gpu_tool import ToolLock, find_tool
from .ops_gpu import gpus
from .scene import Nothing, Pieces, Scene, Unseen, table

HEAD, TAIL = 64 << 10, 512 << 10
DETAILS = ("-q", "-d", "UTILIZATION,MEMORY,POWER,CLOCK,TEMPERATURE,ECC,PIDS,PERFORMANCE")
MOST_SEGMENTS = 200


def gpu(scene: Scene, limit_s: float) -> Pieces:
    """Memory and holders, then all that the driver's tool tells of load, power, clocks, ECC. Never two copies of the tool at once."""
    deadline = time.monotonic() + limit_s
    report = gpus(scene.ctx, {"limit_s": limit_s}, b"")[0]
    if report["missing"]:
        raise Nothing(report["blind"])
    if report["blind"]:
        raise Unseen(report["blind"])
    pieces = [("gpu.json", json.dumps(report["gpus"], indent=1).encode("utf-8"))]
    tool = find_tool(procs.own_environ().get("PATH")) or ""
    lock = ToolLock(tool)
    try:
        busy = lock.acquire(deadline, scene.ctx)
        answer = None if busy else lock.run([tool, *DETAILS], deadline, scene.ctx)
    finally:
        lock.close()
    if answer is not None and not answer.blind and answer.code == 0:
        pieces.append(("gpu.txt", answer.stdout.encode("utf-8", "replace")))
    return pieces


def kernel(scene: Scene, limit_s: float) -> Pieces:
    """Lines about GPUs, memory kills, blocked tasks and failing disks; all of this boot when no server was named."""
    found = kernel_log.KernelLog().since(scene.start)
    if found["type"] == "absent":
        raise Nothing(found["reason"])
    if found["type"] == "blind":
        raise Unseen(found["reason"])
    return [("kernel.txt", ("\n".join(found["value"]) + "\n").encode("utf-8", "replace"))]


def log(scene: Scene, limit_s: float) -> Pieces:
    """What this launch wrote: all of it, or its head and its tail."""
    if not scene.log:
        raise Nothing("no log is known")
    try:
        fd = files.open_regular(scene.log)
    except OpError as error:
        raise Unseen(error.message) from error
    try:
        size = os.fstat(fd).st_size
        begin = scene.log_offset if scene.log_offset <= size else 0
        if size - begin <= HEAD + TAIL:
            data = os.pread(fd, size - begin, begin)
        else:
            left_out = size - begin - HEAD - TAIL
            data = os.pread(fd, HEAD, begin) + b"\n... %d bytes left out ...\n" % left_out + os.pread(fd, TAIL, size - TAIL)
    finally:
        os.close(fd)
    if not data:
        raise Nothing("the log is empty")
    return [("log.txt", data)]


def shared_memory(scene: Scene, limit_s: float) -> Pieces:
    """Segments in /dev/shm and System V, largest first: what a dead server left there can fill it for the next one."""
    rows: List[Tuple[Any, ...]] = []
    now = time.time()
    with os.scandir("/dev/shm") as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed while we look
            if stat.S_ISREG(info.st_mode):
                rows.append((info.st_size, procs.user_name(info.st_uid), int(now - info.st_mtime), entry.name))
    rows.sort(key=lambda row: -row[0])
    text = space(["/dev/shm"]) + "\n" + table(("bytes", "user", "age_s", "segment"), rows[:MOST_SEGMENTS])
    if len(rows) > MOST_SEGMENTS:
        text += "and %d more\n" % (len(rows) - MOST_SEGMENTS)
    return [("shared_memory.txt", (text + "\n" + _read("/proc/sysvipc/shm")).encode("utf-8", "replace"))]


def disk(scene: Scene, limit_s: float) -> Pieces:
    """Space and mounts where the server writes and reads, the host's memory and load."""
    paths = ["/", "/tmp", os.path.expanduser("~"), scene.ctx.state_dir] + ([os.path.dirname(scene.log)] if scene.log else [])
    paths += [link for link in (procs.read_link("/proc/%d/cwd" % one.pid) for one in scene.living[:1]) if link]
    names = ("/proc/meminfo", "/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/mounts")
    return [("disk.txt", (space(paths) + "".join("\n== %s\n%s" % (name, _read(name)) for name in names)).encode("utf-8", "replace"))]


def space(paths: List[str]) -> str:
    """Bytes and inodes of the file systems below these paths; one that does not answer is told as such."""
    rows: List[Tuple[Any, ...]] = []
    for path in dict.fromkeys(path for path in paths if path):
        try:
            found = careful.read(("statvfs", path), functools.partial(os.statvfs, path))
            total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
            rows.append((total, free, found.f_files or None, found.f_favail if found.f_files else None, path))
        except (OSError, careful.Stuck) as problem:
            rows.append((None, None, None, None, "%s (%s)" % (path, problem)))
    return table(("bytes", "free", "inodes", "free_inodes", "path"), rows)


def _read(path: str) -> str:
    return (procs.read_bytes(path, 256 << 10) or b"(cannot be read)\n").decode("utf-8", "replace")
