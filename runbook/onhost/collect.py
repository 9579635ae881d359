"""The evidence bundle of a server: items taken side by side, each under its own limit in time and bytes, each failing alone.

Nothing is paused, signalled or changed. An item that is late is told as late; what came meanwhile is kept.
"""

import functools
import os
import time
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from . import collect_host, collect_process, collect_ranks
from .errors import OpError
from .scene import Late, Nothing, Pieces, Scene, Unseen
from .together import together

TOTAL_S = 20.0


class Item(NamedTuple):
    """How an item is taken: its function, seconds, bytes over all its files."""

    take: Callable[[Scene, float], Pieces]
    limit_s: float
    most: int


ITEMS: Dict[str, Item] = {
    "stacks": Item(collect_process.stacks, 8.0, 1 << 20),
    "processes": Item(collect_process.processes, 5.0, 512 << 10),
    "gpu": Item(collect_host.gpu, 10.0, 256 << 10),
    "kernel": Item(collect_host.kernel, 3.0, 64 << 10),
    "log": Item(collect_host.log, 3.0, 640 << 10),
    "sockets": Item(collect_process.sockets, 5.0, 512 << 10),
    "shared_memory": Item(collect_host.shared_memory, 3.0, 128 << 10),
    "disk": Item(collect_host.disk, 3.0, 128 << 10),
    "packages": Item(collect_process.packages, 5.0, 256 << 10),
    "environment": Item(collect_process.environment, 3.0, 512 << 10),
    "flight_recorder": Item(collect_ranks.flight_recorder, 12.0, 64 << 20),
    "ras": Item(collect_ranks.ras_status, 8.0, 4 << 20),
}


def collect(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """`args`: {run, server, pid, start, log, log_offset, interpreter, what, limit_s}.

    Answers {items, files, machine, wants_py_spy}; blob: zlib of all files' bytes.

    `items`: {item, status, reason, seconds, cut} with status taken, absent, blind, late or failed. `files`: {item, name, bytes}.
    """
    unknown = sorted(set(args.get("what") or ()) - set(ITEMS))
    if unknown:
        raise OpError("bad_request", "there is no item `%s`" % unknown[0], "one of: " + ", ".join(ITEMS))
    names = list(args.get("what") or ITEMS)
    limit_s = min(float(args.get("limit_s", TOTAL_S)), 120.0)
    scene = Scene(ctx, args)
    tasks = [functools.partial(_take, scene, ITEMS[name], limit_s) for name in names]
    late: Any = ("late", "no answer in %.0f s" % limit_s, limit_s, [])
    failed = functools.partial(_failed, limit_s)
    found = together(tasks, time.monotonic() + limit_s, late, failed, at_once=len(tasks))
    items: List[Dict[str, Any]] = []
    files: List[Dict[str, Any]] = []
    data: List[bytes] = []
    for at, name in enumerate(names):
        status, reason, seconds, pieces = found[at]
        kept, cut = bounded(pieces, ITEMS[name].most)
        items.append({"item": name, "status": status, "reason": reason, "seconds": round(seconds, 3), "cut": cut})
        files += [{"item": name, "name": file, "bytes": len(text)} for file, text in kept]
        data += [text for _, text in kept]
    answer = {"items": items, "files": files, "machine": os.uname().machine, "wants_py_spy": scene.wants_py_spy}
    return answer, zlib.compress(b"".join(data), 1)


OPS = {"collect": collect}


def _take(scene: Scene, item: Item, limit_s: float) -> Any:
    """(status, reason, seconds, pieces)."""
    began = time.monotonic()
    try:
        pieces = item.take(scene, min(item.limit_s, max(0.1, limit_s - 0.5)))
        status, reason = "taken", ""
    except Nothing as why:
        status, reason, pieces = "absent", str(why), []
    except Unseen as why:
        status, reason, pieces = "blind", str(why), why.pieces
    except Late as why:
        status, reason, pieces = "late", str(why), []
    return status, reason, time.monotonic() - began, pieces


def _failed(seconds: float, error: Exception) -> Any:
    return "failed", "%s: %s" % (type(error).__name__, str(error)[:200]), seconds, []


def bounded(pieces: Pieces, most: int) -> Tuple[Pieces, bool]:
    """The files that fit, the last of them cut with a note; and whether something was cut."""
    kept: Pieces = []
    for name, text in pieces:
        if len(text) > most:
            if most > 0 and not name.endswith(".pickle"):
                kept.append((name, text[:most] + b"\n... cut: %d bytes in all\n" % len(text)))
            return kept, True
        kept.append((name, text))
        most -= len(text)
    return kept, False
