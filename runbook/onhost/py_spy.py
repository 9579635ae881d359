"""Python stacks by py-spy: where it lies, whether it may be run, what it says. Always `--nonblocking`: the target is never paused."""

import json
import os
import shutil
from typing import Any, Dict, List, Optional

from . import foreign, procs

MOST_FRAMES = 60  # of a main thread, innermost first; a third of it of each other one
MOST_THREADS = 40
MOST_SAME = 3  # threads of a process at one place
MOST_BYTES = 8 << 20
NAME = "py-spy"
NEXT = "put py-spy on the host (`pip install py-spy`), or install runbook with its extra `pyspy` here and it is copied there"


def own_path(state_dir: str) -> str:
    """Where a copy that the controller sent lies."""
    return os.path.join(state_dir, "bin", NAME)


def find(pid: int, state_dir: str) -> Optional[str]:
    """On PATH, beside the target's interpreter, or our own copy. Only what nobody but root and this user can have written."""
    found = shutil.which(NAME, path=procs.own_environ().get("PATH") or os.defpath)
    beside = [os.path.join(folder, NAME) for folder in interpreter_folders(pid)]
    candidates = ([found] if found else []) + beside + [own_path(state_dir)]
    return next((path for path in candidates if may_run(path)), None)


def interpreter_folders(pid: int) -> List[str]:
    """Folders that may hold the target's own tools: of its first argument, of its environment, of its executable."""
    words = procs.split_cmdline(procs.cmdline(pid))
    program = words[0] if words and os.path.isabs(words[0]) else ""
    venv = procs.environ_value(pid, "VIRTUAL_ENV") or ""
    found = [os.path.dirname(program), os.path.join(venv, "bin") if os.path.isabs(venv) else ""]
    found.append(os.path.dirname(procs.read_link("/proc/%d/exe" % pid) or ""))
    return [folder for folder in dict.fromkeys(found) if folder]


def has_python(pid: int) -> bool:
    """Whether it runs Python, as far as its mapped files show it; true when they are not ours to read."""
    if "python" in (procs.read_link("/proc/%d/exe" % pid) or ""):
        return True
    maps = procs.read_bytes("/proc/%d/maps" % pid, 16 << 20)
    return maps is None or b"python" in maps


def may_run(path: str) -> bool:
    """Whether it is a program that another account cannot have put there: we may be root, and the target somebody else's."""
    try:
        info, folder = os.stat(path), os.stat(os.path.dirname(os.path.realpath(path)))
    except OSError:
        return False
    trusted = all(item.st_uid in (0, os.geteuid()) and not item.st_mode & 0o002 for item in (info, folder))
    return trusted and os.path.isfile(path) and os.access(path, os.X_OK)


def dump(tool: str, pid: int, limit_s: float, ctx: Any = None, objects: bool = False) -> Any:
    """The threads as plain data, or a text that says why there are none. objects: also where the local objects of each frame lie."""
    more = ["--locals"] if objects else []
    answer = foreign.ask([tool, "dump", "--nonblocking", "--json", *more, "--pid", str(pid)], limit_s, MOST_BYTES, ctx)
    if answer.problem:
        return answer.problem
    if answer.code != 0:
        return complaint(answer.stderr.decode("utf-8", "replace"), answer.code)
    try:
        return threads(json.loads(answer.stdout.decode("utf-8", "replace")), pid)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "py-spy gave an answer that is not its JSON: %r" % answer.stdout[:60]


def complaint(text: str, code: int) -> str:
    """What py-spy said, in words that help."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if "ermission" in first or "ermission denied" in text:
        return "py-spy may not read this process (ptrace rights: another user's, Yama, or a container without SYS_PTRACE)"
    if "find python version" in text:
        return "py-spy finds no Python in this process"
    return "py-spy exited %d: %s" % (code, first[:160])


def threads(found: List[Dict[str, Any]], pid: int) -> List[Dict[str, Any]]:
    """Main thread first: {tid, thread, main, frames, spots}. Without a kernel id (py-spy cannot always tell) tid is Python's own.

    `spots`: (whole path, line, addresses of local objects by name) of each frame. What the objects hold is not kept.
    """
    rows = []
    for item in found:
        name, tid = item.get("thread_name") or "", item.get("os_thread_id")
        stack = item["frames"][_asks_only(item["frames"]) :]
        main = tid == pid if tid is not None else name == "MainThread"
        frames = ["%s (%s:%d)" % (frame["name"], _file(frame), frame["line"]) for frame in stack]
        most = MOST_FRAMES if main else MOST_FRAMES // 3
        shown = frames if len(frames) <= most else [*frames[: most - 1], "... (%d more)" % (len(frames) - most + 1)]
        number = pid if main else tid if tid is not None else int(item["thread_id"])
        spots = [(frame.get("filename") or "", frame["line"], _objects(frame)) for frame in stack]
        rows.append({"tid": number, "thread": name, "main": main, "frames": shown, "spots": spots})
    return thinned(sorted(rows, key=lambda row: not row["main"]))[:MOST_THREADS]


def _asks_only(frames: List[Dict[str, Any]]) -> int:
    """1 where the innermost frame asks an event whether it is set, which a loop that spins does now and then: it counts as its line."""
    asks = len(frames) > 1 and frames[0]["name"] == "is_set" and _file(frames[0]).endswith("threading.py")
    return 1 if asks else 0


def thinned(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Of many threads at the same place (a pool that waits) the first few; the last of them says how many more there are."""
    kept: Dict[Any, List[Dict[str, Any]]] = {}
    for row in rows:
        same = kept.setdefault((row["main"], *row["frames"]), [])
        same.append(row)
    found = []
    for same in kept.values():
        if len(same) > MOST_SAME:
            same[MOST_SAME - 1]["note"] = "%d more threads at this place" % (len(same) - MOST_SAME)
        found += same[:MOST_SAME]
    return found


def _objects(frame: Dict[str, Any]) -> Optional[Dict[str, int]]:
    known = frame.get("locals")
    return {one["name"]: one["addr"] for one in known} if known is not None else None


def _file(frame: Dict[str, Any]) -> str:
    return str(frame.get("short_filename") or frame.get("filename") or "?")
