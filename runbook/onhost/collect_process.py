"""Evidence items about the server's processes: stacks, the tree with its threads, sockets, packages, environment."""

import json
import os
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Set

from . import procs, sampler
from . import stacks as stack_looks
from .scene import Nothing, Pieces, Scene, Unseen, table, text_of

PREFIXES = re.compile(
    r"^(?:NCCL|TORCH|PYTORCH|CUDA|SGLANG|VLLM|SGL|GLOO|HF|TRANSFORMERS|TRITON|OMP|MKL|UCX|NVIDIA|HIP|ROCR|RUNBOOK)_"
    r"|^(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHON\w*|VIRTUAL_ENV)$"
)
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SITE = re.compile(rb"(/[^\n]*?/(?:site|dist)-packages)/")
_DIST = re.compile(r"^(.+?)-(\d[^-]*)\.(?:dist|egg)-info$")
MOST_PROCESSES = 64


def stacks(scene: Scene, limit_s: float) -> Pieces:
    """Each process's threads; threads of a process that stand at the same place are told once."""
    answer = stack_looks.stacks(scene.ctx, {"targets": scene.targets(), "limit_s": limit_s}, b"")[0]
    scene.wants_py_spy = answer["wants_py_spy"]
    found = answer["found"]
    if found["type"] == "absent":
        raise Nothing(found["reason"])
    if found["type"] == "blind":
        raise Unseen(found["reason"])
    text = stacks_text(found["value"]) + "".join("== no stacks of %s\n" % line for line in answer["missing"])
    return [("stacks.txt", text.encode("utf-8", "replace"))]


def stacks_text(rows: List[Dict[str, Any]]) -> str:
    """Stacks for people: where the ranks stand, then each process, its main thread first."""
    parts = rank_groups(rows)
    for pid in dict.fromkeys(row["pid"] for row in rows):
        own = [row for row in rows if row["pid"] == pid]
        notes = [row["note"] for row in own if row["main"] and row.get("note")]
        rank = own[0]["rank"]
        parts.append(
            "== pid %d%s, by %s%s" % (pid, "" if rank is None else " rank %d" % rank, own[0]["source"], "".join(" (%s)" % n for n in notes))
        )
        places: Dict[Any, List[Dict[str, Any]]] = {}
        for row in own:
            places.setdefault((row["main"], tuple(row["frames"])), []).append(row)
        for (main, frames), threads in places.items():
            names = ", ".join("%s (%d)" % (row.get("thread") or "thread", row["tid"]) for row in threads)
            more = "".join("; " + row["note"] for row in threads if row.get("note") and not main)
            parts.append("-- %s%s%s" % ("main " if main else "", names, more))
            parts += ["   " + frame for frame in frames]
    return "\n".join(parts) + "\n"


def rank_groups(rows: List[Dict[str, Any]]) -> List[str]:
    """One line for the ranks whose main threads stand at the same place, the largest group first; nothing where one rank is known."""
    places: Dict[Any, List[int]] = {}
    for row in rows:
        if row["main"] and row["rank"] is not None:
            places.setdefault(tuple(row["frames"]), []).append(row["rank"])
    if sum(len(ranks) for ranks in places.values()) < 2:
        return []
    ordered = sorted(places.items(), key=lambda item: (-len(item[1]), item[1]))
    return ["rank %s: %s" % (", ".join(map(str, sorted(ranks))), " < ".join(frames[:4])) for frames, ranks in ordered] + [""]


def processes(scene: Scene, limit_s: float) -> Pieces:
    """The tree with every thread, how the main process ended, what else is told of them; kernel stacks where they may be read."""
    if not scene.pid:
        raise Nothing("no server was named")
    spec = {key: scene.args.get(key) for key in ("run", "server", "pid", "start")}
    found = sampler.OPS["sample"](scene.ctx, dict(spec, threads=True, full=True), b"")[0]
    text = ["exit: %s" % json.dumps(found["exit"].get("value", found["exit"].get("reason")))]
    outcome = found["processes"]
    if outcome["type"] != "seen":
        return [("processes.txt", (text[0] + "\n" + text_of(outcome)).encode("utf-8"))]
    rows = outcome["value"][:MOST_PROCESSES]
    text.append(table(("pid", "ppid", "rank", "state", "rss", "threads", "title"), [_process_row(row) for row in rows]))
    for row in rows:
        threads = [(one["tid"], one["state"], one["run_ns"] // 1000000, one["switches"], one["wchan"]) for one in row["threads"]]
        text.append("threads of pid %d" % row["pid"])
        text.append(table(("tid", "state", "run_ms", "switches", "wchan"), threads))
        text += kernel_stacks(row)
    data = json.dumps({key: found[key] for key in ("processes", "locks", "folders", "pressure") if key in found}, indent=1, default=str)
    return [("processes.txt", "\n".join(text).encode("utf-8", "replace")), ("processes.json", data.encode("utf-8", "replace"))]


def _process_row(row: Dict[str, Any]) -> Any:
    return row["pid"], row["ppid"], row["rank"], row["state"], row["rss"], len(row["threads"]), row["title"]


def kernel_stacks(row: Dict[str, Any]) -> Iterable[str]:
    """Where threads in D state wait in the kernel; root's alone, and nothing is said where it may not be read."""
    for thread in row["threads"]:
        raw = procs.read_bytes("/proc/%d/task/%d/stack" % (row["pid"], thread["tid"]), 4096) if thread["state"] == "D" else None
        if raw:
            yield "kernel stack of thread %d:\n%s" % (thread["tid"], raw.decode("ascii", "replace"))


def sockets(scene: Scene, limit_s: float) -> Pieces:
    """TCP connections of the tree with their counters, locks it waits for, and the processes at their other ends."""
    scene.alive()
    spec = {key: scene.args.get(key) for key in ("run", "server", "pid", "start")}
    found = sampler.OPS["sample"](scene.ctx, dict(spec, full=True), b"")[0]
    if found["sockets"]["type"] != "seen":
        raise Unseen(found["sockets"].get("reason", ""))
    keys = ("pid", "state", "local", "peer", "peer_pid", "received", "sent", "unread", "unsent", "quiet_s")
    rows = [tuple(row.get(key) for key in keys) for row in found["sockets"]["value"]]
    return [("sockets.txt", table(keys, rows).encode("utf-8", "replace"))]


def packages(scene: Scene, limit_s: float) -> Pieces:
    """Distributions beside the server's interpreter, by the names of their metadata: nothing is imported, nothing started."""
    deadline = time.monotonic() + limit_s
    folders = site_folders(scene)
    if not folders:
        raise Nothing("no folder of Python packages belongs to it")
    lines: List[str] = []
    for folder in sorted(folders):
        lines.append("# " + folder)
        lines += distributions(folder, deadline)
    return [("packages.txt", ("\n".join(lines) + "\n").encode("utf-8", "replace"))]


def site_folders(scene: Scene) -> Set[str]:
    """site-packages that its processes have mapped, or that lie below its interpreter's prefix."""
    found: Set[str] = set()
    for stat in scene.living[:MOST_PROCESSES]:
        maps = None if stat.state == "D" else procs.read_bytes("/proc/%d/maps" % stat.pid, 16 << 20)
        found |= {match.decode("utf-8", "replace") for match in _SITE.findall(maps or b"")}
    program = scene.args.get("interpreter") or ""
    for prefix in (
        {os.path.dirname(os.path.dirname(program)), os.path.dirname(os.path.dirname(os.path.realpath(program)))} if program else ()
    ):
        lib = os.path.join(prefix, "lib")
        versions = [name for name in _names(lib) if name.startswith("python")]
        found |= {os.path.join(lib, name, kind) for name in versions for kind in ("site-packages", "dist-packages")}
    return {folder for folder in found if os.path.isdir(folder)}


def distributions(folder: str, deadline: float) -> List[str]:
    """`name==version`, and where it came from when that was not an index (an editable install, a git revision)."""
    lines = []
    for name in sorted(_names(folder), key=str.lower):
        match = _DIST.match(name)
        if match and time.monotonic() < deadline:
            raw = procs.read_bytes(os.path.join(folder, name, "direct_url.json"), 4096)
            lines.append("%s==%s%s" % (match.group(1), match.group(2), "  " + origin(raw) if raw else ""))
    return lines


def origin(raw: bytes) -> str:
    """From direct_url.json: the place, without what may be a password in it, and the revision."""
    try:
        found = json.loads(raw.decode("utf-8"))
        place = re.sub(r"//[^/@]*@", "//", str(found["url"]))
        revision = (found.get("vcs_info") or {}).get("commit_id", "")
        return ("editable " if (found.get("dir_info") or {}).get("editable") else "") + place + ("@" + revision if revision else "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "(its origin cannot be read)"


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def environment(scene: Scene, limit_s: float) -> Pieces:
    """Variables that steer engines and communicators, limits of each process, memory cgroups; values of secrets never leave the host."""
    parts: List[str] = []
    refused: Optional[str] = None
    last = ""
    for stat in scene.alive()[:MOST_PROCESSES]:
        raw = None if stat.state == "D" else procs.read_bytes("/proc/%d/environ" % stat.pid, 1 << 20)
        if raw is None:
            refused = "the environment of pid %d is not ours to read" % stat.pid
            continue
        shown = "\n".join(variables(raw))
        parts.append("== pid %d\n%s" % (stat.pid, "(as the one before)" if shown == last else shown))
        last = shown
    main = scene.living[0].pid
    for name in ("limits", "cgroup"):
        parts.append(
            "== /proc/%d/%s\n%s" % (main, name, (procs.read_bytes("/proc/%d/%s" % (main, name)) or b"").decode("utf-8", "replace"))
        )
    pieces = [("environment.txt", ("\n".join(parts) + "\n").encode("utf-8", "replace"))]
    if refused and not last:
        raise Unseen(refused, pieces)
    return pieces


def variables(raw: bytes) -> List[str]:
    """The ones that matter, sorted; a value whose name speaks of a secret is left out."""
    pairs = (entry.decode("utf-8", "backslashreplace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    wanted = sorted((name, value) for name, _, value in pairs if PREFIXES.search(name))
    return ["%s=%s" % (name, "(masked)" if SECRET.search(name) else re.sub(r"//[^/@\s]*@", "//", value)) for name, value in wanted]
