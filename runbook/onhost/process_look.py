"""One process as a sample sees it: state, title, bytes, threads. Files of /proc only; what is not ours to read is blind."""

import os
import re
from typing import Any, Dict, List, Optional

from . import procs
from .sources import absent, blind, seen

MOST_THREADS = 2000  # of one process; each costs three small files
MOST_MAPS = 16 << 20
MOST_SMAPS = 64 << 20
_RANK = re.compile(r"(?:^|_|:|\b)TP(\d+)(?:_|\b)")
_OTHER_AXIS = re.compile(r"_(?:PP|DP)[1-9]\d*(?:_|\b)")
_WEIGHTS = re.compile(rb"\.(?:safetensors|gguf|bin|pt)(?: \(deleted\))?$", re.MULTILINE)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ ")
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


def look(stat: procs.Stat, threads: bool) -> Dict[str, Any]:
    """One process; `threads` adds each thread's clocks and wait channel."""
    stuck = stat.state == "D"  # cmdline, environ and maps of such a process can block their reader
    raw = procs.bounded(lambda: procs.cmdline(stat.pid)) if stuck else procs.cmdline(stat.pid)
    title = procs.title_of(stat.comm, raw)
    return {
        "pid": stat.pid,
        "start": stat.start,
        "ppid": stat.ppid,
        "state": stat.state,
        "title": title,
        "rss": stat.rss,
        "threads": thread_looks(stat.pid) if threads else [],
        "rank": rank_of(title, None if stuck else procs.environ_value(stat.pid, "RANK")),
        "io": io_of(stat),
        "mapped_weights": blind("in D state: reading its maps could block") if stuck else mapped_weights(stat),
    }


def rank_of(title: str, variable: Optional[str]) -> Optional[int]:
    """Rank from a title such as `sglang::scheduler_TP1`, else from RANK; none where another parallel axis makes TP ambiguous."""
    found = _RANK.search(title)
    if found is not None:
        return None if _OTHER_AXIS.search(title) else int(found.group(1))
    return int(variable) if variable is not None and variable.isdigit() else None


def _unreadable(stat: procs.Stat, what: str) -> Dict[str, Any]:
    return blind("%s: %s" % (what, "a zombie has none" if stat.state in "ZX" else "not permitted, or it is gone"))


def io_of(stat: procs.Stat) -> Dict[str, Any]:
    """Bytes that the process read and wrote so far."""
    raw = procs.read_bytes("/proc/%d/io" % stat.pid, 4096)
    if not raw:
        return _unreadable(stat, "/proc/PID/io")
    fields = dict(line.split(b": ", 1) for line in raw.splitlines() if b": " in line)
    return seen({name: int(fields[name.encode()]) for name in ("rchar", "read_bytes", "wchar")})


def mapped_weights(stat: procs.Stat) -> Dict[str, Any]:
    """Resident bytes of mapped weight files; the costly smaps is read only when maps names one."""
    maps = procs.read_bytes("/proc/%d/maps" % stat.pid, MOST_MAPS)
    if maps is None or (not maps and stat.state in "ZX"):
        return _unreadable(stat, "/proc/PID/maps")
    if not _WEIGHTS.search(maps):
        return absent()
    smaps = procs.read_bytes("/proc/%d/smaps" % stat.pid, MOST_SMAPS)
    return seen(weight_rss(smaps)) if smaps else _unreadable(stat, "/proc/PID/smaps")


def weight_rss(smaps: bytes) -> int:
    """Sum of Rss, bytes, over the mappings of weight files."""
    total, counted = 0, False
    for line in smaps.splitlines():
        if _MAPPING.match(line):
            counted = _WEIGHTS.search(line) is not None
        elif counted and line.startswith(b"Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def thread_looks(pid: int) -> List[Dict[str, Any]]:
    """Each thread that could be read; one that ends while we look is left out."""
    folder = "/proc/%d/task" % pid
    try:
        tids = sorted(int(name) for name in os.listdir(folder))
    except OSError:
        return []
    looks = (_thread_look("%s/%d" % (folder, tid), tid) for tid in tids[:MOST_THREADS])
    return [found for found in looks if found is not None]


def _thread_look(folder: str, tid: int) -> Optional[Dict[str, Any]]:
    clocks, status = procs.read_bytes(folder + "/schedstat", 4096), procs.read_bytes(folder + "/status", 4096)
    if not clocks or not status:
        return None
    run_ns, wait_ns = clocks.split()[:2]
    at = status.find(b"\nState:")
    return {
        "tid": tid,
        "state": status[at + 7 :].split(None, 1)[0].decode("ascii"),
        "run_ns": int(run_ns),
        "wait_ns": int(wait_ns),
        "switches": sum(int(count) for count in _SWITCHES.findall(status)),
        "wchan": (procs.read_bytes(folder + "/wchan", 4096) or b"").decode("ascii", "replace"),
    }
