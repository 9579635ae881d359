"""Torch's flight recorder on demand: a byte into each rank's FIFO makes it write its dump, without a timeout and without ptrace.

A dump that lies there already says where the rank was when it was written, not where it is: it is evidence, never a look.
"""

import errno
import os
import stat
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import flight_read, procs
from .sources import absent, blind, seen

POLL_S = 0.05
MOST_DUMP = 64 << 20
HOW = "start it with TORCH_NCCL_DEBUG_INFO_PIPE_FILE and TORCH_FR_BUFFER_SIZE, or launch with `dumps: full`"
STEMS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")

Targets = List[Tuple[int, int, Optional[int]]]


class Recorder(NamedTuple):
    """One rank's recorder: its FIFO and where its dumps go, as we can open them."""

    pid: int
    rank: int
    pipe: str
    dumps: List[str]


def recorders(targets: Targets) -> Tuple[List[Recorder], str]:
    """Those that can be poked, and why there are none."""
    found, blindness = [], ""
    for pid, _, rank in targets:
        if rank is None:
            continue
        if procs.read_bytes("/proc/%d/environ" % pid, 1) is None:
            blindness = "the environment of pid %d is not ours to read" % pid
            continue
        stem = procs.environ_value(pid, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
        if stem:
            found.append(Recorder(pid, rank, reach(pid, "%s%d.pipe" % (stem, rank)), dump_files(pid, rank)))
    return found, blindness


def dump_files(pid: int, rank: int) -> List[str]:
    """Where this rank writes its dumps, by its environment or by torch's defaults, newest rule first."""
    stems = [value for value in (procs.environ_value(pid, name) for name in STEMS) if value]
    if not stems:
        cache = procs.environ_value(pid, "XDG_CACHE_HOME") or os.path.join(procs.environ_value(pid, "HOME") or "/tmp", ".cache")
        stems = [os.path.join(cache, "torch", "comm_lib_trace_rank_"), "/tmp/nccl_trace_rank_"]
    return [reach(pid, "%s%d" % (stem, rank)) for stem in stems]


def reach(pid: int, path: str) -> str:
    """A path of that process as we can open it: from its working directory, and inside its container."""
    if not os.path.isabs(path):
        return os.path.join("/proc/%d/cwd" % pid, path)
    same = procs.read_link("/proc/%d/ns/mnt" % pid) == procs.read_link("/proc/self/ns/mnt")
    inside = "/proc/%d/root%s" % (pid, path)
    return path if same or not os.path.isdir("/proc/%d/root/" % pid) else inside


def look(ctx: Any, targets: Targets, limit_s: float) -> Dict[str, Any]:
    """An outcome of rows (see `flight_read`); `raw` holds the dumps by rank."""
    deadline = time.monotonic() + limit_s
    found, blindness = recorders(targets)
    if not found:
        return blind(blindness) if blindness else absent("no rank has a flight recorder that can be asked: " + HOW)
    poked = time.time()
    problems = {recorder.rank: poke(recorder) for recorder in found}
    waiting = [recorder for recorder in found if not problems[recorder.rank]]
    rows: List[Dict[str, Any]] = []
    raw: Dict[int, bytes] = {}
    while waiting and time.monotonic() < deadline and not ctx.cancelled.is_set():
        for recorder in list(waiting):
            data = fresh(recorder, poked)
            dump = _loaded(data) if data else None
            if data and dump is not None:
                waiting.remove(recorder)
                raw[recorder.rank] = data
                rows += flight_read.rows(dump, recorder.rank)
        if waiting:
            time.sleep(POLL_S)
    problems.update({recorder.rank: "no dump in %.0f s after it was asked" % limit_s for recorder in waiting})
    told = "; ".join("rank %d: %s" % (rank, why) for rank, why in sorted(problems.items()) if why)
    return dict(seen(rows), raw=raw, told=told) if rows else blind("flight recorder: " + (told or "its dumps have no collective"))


def poke(recorder: Recorder) -> str:
    """Write one byte to the FIFO; empty, or why it could not be done. Never waits for a reader."""
    try:
        fd = os.open(recorder.pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENXIO)
        return "nobody reads %s: no NCCL process group yet, or TORCH_FR_BUFFER_SIZE is not set" % recorder.pipe if missing else str(error)
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return "%s is no FIFO" % recorder.pipe
        os.write(fd, b"1")
        return ""
    except OSError as error:
        return "%s: %s" % (recorder.pipe, error.strerror)
    finally:
        os.close(fd)


def fresh(recorder: Recorder, since: float) -> Optional[bytes]:
    """A dump that was written since then; it may still be incomplete."""
    for path in recorder.dumps:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(fd, "rb") as stream:
            info = os.fstat(stream.fileno())
            if stat.S_ISREG(info.st_mode) and info.st_mtime >= since - 0.01 and 0 < info.st_size <= MOST_DUMP:
                return stream.read(MOST_DUMP)
    return None


def _loaded(data: bytes) -> Optional[Dict[str, Any]]:
    try:
        return flight_read.load(data)
    except ValueError:
        return None  # not written to its end yet; else the deadline tells
