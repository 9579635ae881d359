"""Evidence items about the communicators: the flight recorder's dumps, NCCL's RAS."""

import os
import time
from typing import Any, Dict, List

from . import files, flight, flight_read, procs, ras
from .errors import OpError
from .scene import Nothing, Pieces, Scene, Unseen, table

MOST_OLD = 16 << 20


def flight_recorder(scene: Scene, limit_s: float) -> Pieces:
    """Dumps written now on our asking, else those that the server wrote since its start; what they say, and where ranks differ."""
    targets = scene.targets()
    found = flight.look(scene.ctx, targets, limit_s - 0.5)
    dumps: Dict[int, bytes] = found.get("raw", {})
    told = found.get("told") or found.get("reason", "")
    if not dumps:
        dumps = old_dumps(targets)
        told += "; these were written earlier in this server's life" if dumps else ""
    if not dumps:
        raise (Nothing if found["type"] == "absent" else Unseen)(found.get("reason", "it has no collective yet"))
    return [("flight_recorder.txt", summary(dumps, told)), *(("flight_rank%d.pickle" % rank, raw) for rank, raw in sorted(dumps.items()))]


def old_dumps(targets: Any) -> Dict[int, bytes]:
    """By rank: dumps that are younger than their process, as torch writes them when a collective times out."""
    found: Dict[int, bytes] = {}
    for pid, _, rank in targets:
        stat = procs.read_stat(pid)
        for path in flight.dump_files(pid, rank) if rank is not None and stat is not None else ():
            try:
                if os.stat(path).st_mtime >= _started(stat) and rank not in found:
                    found[rank] = files.read_regular(path, MOST_OLD)
            except (OSError, OpError):
                continue
    return found


def _started(stat: Any) -> float:
    return time.time() - procs.age_s(stat) - 1.0


def summary(dumps: Dict[int, bytes], told: str) -> bytes:
    """What the dumps say, for people."""
    rows: List[Dict[str, Any]] = []
    problems = [told] if told else []
    for rank, raw in sorted(dumps.items()):
        try:
            rows += flight_read.rows(flight_read.load(raw), rank)
        except ValueError as error:
            problems.append("rank %d: %s" % (rank, error))
    differ = flight_read.divergence(rows) or ["no group has ranks at different operations"]
    keys = ("group", "rank", "sequence", "state", "operation")
    return "\n".join([*differ, "", table(keys, [tuple(row[key] for key in keys) for row in rows]), *problems, ""]).encode(
        "utf-8", "replace"
    )


def ras_status(scene: Scene, limit_s: float) -> Pieces:
    """RAS's own words."""
    found = ras.look(scene.ctx, scene.targets(), limit_s - 0.5)
    if "raw" in found:
        return [("ras.txt", found["raw"].encode("utf-8", "replace"))]
    raise (Nothing if found["type"] == "absent" else Unseen)(found["reason"])
