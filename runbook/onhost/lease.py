"""Leases: which run has which GPUs of this host. A file in the run's folder: when the folder goes, the lease is given back.

    free ── take ──> held by a connection ── a keeper starts ──> held by the run's keeper, suspended or not
      ^                     │ its helper ends                          │ retired; or nobody renewed it until `until`
      └─────────────────────┴──────────────────────────────────────────┘

The helper gives a connection's lease back as it ends, whatever ended it; one that was killed leaves a file that names a process which
is gone. So the state folder tells exactly, for the runs of one account. Of other accounts' runs it knows nothing.
"""

import contextlib
import os
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import held, keeper_link, procs
from .errors import OpError
from .runfolder import RunFolder, locked, read_json, remove_if_empty, run_names, undo_lock, write_json

ALONE_S = 600.0
"""How long a lease without a keeper lasts after its last renewal, when its connection hangs and nobody can tell that it is dead."""
LAST_S = 2.0  # for giving back while the helper ends
_taken: Set[Tuple[str, str]] = set()
"""(state folder, run) of the leases that this helper took."""

Reply = Tuple[Dict[str, Any], bytes]


def path_of(folder: RunFolder) -> str:
    """The lease's file; with this host's name, since a home folder may be shared by several hosts."""
    return os.path.join(folder.path, "lease-%s.json" % os.uname().nodename)


def lease_take(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """Take the GPUs `gpus` (null: all) for `run`, or refresh what it has. Raises OpError busy, with the other lease in `data`.

    `reuse`: runs whose things this one takes over, so that their leases are not in the way. `taken_over`: leases of dead runs that stood
    in the way, each with why it does not count.
    """
    folder, gpus = RunFolder(ctx.state_dir, args["run"]), args.get("gpus")
    with locked(undo_lock(ctx.state_dir)):
        taken_over = []
        for other in leases(ctx.state_dir):
            if other["run"] in (folder.run, *(args.get("reuse") or ())) or not overlap(gpus, other["gpus"]):
                continue
            if not other["stale"]:
                raise OpError("busy", _held(other), "wait for that run, or name other `gpus:`", {"lease": other})
            taken_over.append(other)
        folder.create()
        for other in taken_over:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path_of(RunFolder(ctx.state_dir, other["run"])))
        written = _written(folder, args, gpus)
    if written is not None:
        remove_if_empty(ctx.state_dir)
        raise written
    _taken.add((ctx.state_dir, folder.run))
    return {"taken_over": taken_over}, b""


def _written(folder: RunFolder, args: Dict[str, Any], gpus: Optional[List[int]]) -> Optional[Exception]:
    """Why the lease could not be written, on a full disk for one: then nothing of a run that has nothing else stays."""
    try:
        _write(folder, args, gpus)
    except (OpError, OSError) as error:
        if read_json(folder.keeper) is None and not held.Held(folder.state_dir, folder.run).records():
            folder.remove()
        return error
    return None


def _write(folder: RunFolder, args: Dict[str, Any], gpus: Optional[List[int]]) -> None:
    before = read_json(path_of(folder))
    folder.renew()
    record = {
        "run": folder.run,
        "holder": str(args["holder"])[:200],
        "gpus": gpus,
        "since": before["since"] if before else time.time(),
        "hold_s": float(args["hold_s"]),
        "helper": {"pid": os.getpid(), "start": procs.start_ticks(os.getpid())},
        "boot_id": procs.boot_id(),
    }
    write_json(path_of(folder), record)


def overlap(ours: Optional[List[int]], theirs: Optional[List[int]]) -> bool:
    """Whether two sets of GPUs have one in common; null is all."""
    return ours is None or theirs is None or bool(set(ours) & set(theirs))


def leases(state_dir: str) -> List[Dict[str, Any]]:
    """All leases on this host, oldest first; `stale` says why one does not count, empty when it does."""
    found = []
    for run in run_names(state_dir):
        folder = RunFolder(state_dir, run)
        record = read_json(path_of(folder))
        if record is not None:
            with contextlib.suppress(FileNotFoundError):  # its folder is removed at this moment: it is given back
                found.append(_view(folder, record))
    return sorted(found, key=lambda lease: lease["since"])


def _view(folder: RunFolder, record: Dict[str, Any]) -> Dict[str, Any]:
    keeper = keeper_link.living(folder) is not None
    renewed, expires = folder.last_renewal(), folder.expires()
    hold_s = record["hold_s"] if keeper else min(record["hold_s"], ALONE_S)
    until = renewed + hold_s if expires is None else expires
    shown = {key: record[key] for key in ("run", "holder", "gpus", "since")}
    return {**shown, "renewed": renewed, "until": until, "keeper": keeper, "stale": _stale(record, keeper, until)}


def _stale(record: Dict[str, Any], keeper: bool, until: float) -> str:
    if record["boot_id"] != procs.boot_id():
        return "the host was restarted since"
    if not keeper and not procs.is_alive(record["helper"]["pid"], record["helper"]["start"] or 0):
        return "its connection and its keeper are gone"
    if time.time() > until:
        return "nobody renewed it in time"
    return ""


def _held(other: Dict[str, Any]) -> str:
    gpus = "all GPUs" if other["gpus"] is None else "GPUs %s" % ", ".join(map(str, other["gpus"]))
    return "%s has %s of this host, in run %s" % (other["holder"], gpus, other["run"])


def lease_list(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """All leases of this account on this host."""
    return leases(ctx.state_dir), b""


def give_back(folder: RunFolder) -> None:
    """A run's lease is over, while something else of it may stay."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path_of(folder))


def give_back_ours() -> None:
    """This helper ends: what it took goes back, unless the run has a keeper, which then holds it."""
    for state_dir, run in list(_taken):
        _taken.discard((state_dir, run))
        with contextlib.suppress(OpError, OSError):  # nobody is left to be told; a lease without its process does not count
            _give_back(RunFolder(state_dir, run))


def _give_back(folder: RunFolder) -> None:
    if not os.path.exists(path_of(folder)):
        return  # retired already: taking the locks would make its folders again
    with locked(undo_lock(folder.state_dir), LAST_S), locked(folder.lock, LAST_S):
        record = read_json(path_of(folder))
        if record is None or record["helper"]["pid"] != os.getpid() or read_json(folder.keeper) is not None:
            return
        if held.Held(folder.state_dir, folder.run).records():  # a command's end lies there for the next helper
            give_back(folder)
            return
        folder.remove()
    remove_if_empty(folder.state_dir)


OPS = {"lease_take": lease_take, "lease_list": lease_list}
