"""Leases: which run has which GPUs of this host. A file in the run's folder: when the folder goes, the lease is given back.

    free ── take ──> held by a connection ── a keeper starts ──> held by the run's keeper, suspended or not
      ^                     │ its helper ends                          │ retired; or nobody renewed it until `until`
      └─────────────────────┴──────────────────────────────────────────┘

The helper gives a connection's lease back as it ends, whatever ended it; one that was killed leaves a file that names a process which
is gone. So the state folder tells exactly, for the runs that have it. Other accounts, and runs of this one with another state folder, are
told by a notice (`notices`), and believed by theirs: whether its processes live where that can be seen, else until its time is over.
"""

import contextlib
import os
import threading
import time
from typing import Any, ContextManager, Dict, List, Optional, Set, Tuple

from . import held, keeper_link, notices, procs
from .errors import OpError
from .runfolder import RunFolder, locked, read_json, read_sound, remove_if_empty, run_names, undo_lock, unless_damaged, write_json

ALONE_S = 600.0
"""How long a lease without a keeper lasts after its last renewal, when its connection hangs and nobody can tell that it is dead."""
LAST_S = 2.0  # for giving back while the helper ends
_telling = threading.Lock()  # a renewal must not tell again of what is just given back
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
    with locked(undo_lock(ctx.state_dir)), _others_locked():
        ours, own = (folder.run, *(args.get("reuse") or ())), leases(ctx.state_dir)
        taken_over = [
            other for other in [*own, *leases_elsewhere(ctx.state_dir)] if not _is_ours(other, ours) and overlap(gpus, other["gpus"])
        ]
        for other in taken_over:
            if not other["stale"]:
                raise OpError("busy", _held(other), "wait for that run, or name other `gpus:`", {"lease": other})
        folder.create()
        for other in taken_over:
            if other in own:
                give_back(RunFolder(ctx.state_dir, other["run"]))
        written = _written(folder, args, gpus)
    if written is not None:
        remove_if_empty(ctx.state_dir)
        raise written
    _taken.add((ctx.state_dir, folder.run))
    return {"taken_over": taken_over}, b""


def _is_ours(other: Dict[str, Any], ours: Tuple[str, ...]) -> bool:
    return not other["account"] and other["run"] in ours


def _written(folder: RunFolder, args: Dict[str, Any], gpus: Optional[List[int]]) -> Optional[Exception]:
    """Why the lease could not be written, on a full disk for one: then nothing of a run that has nothing else stays."""
    try:
        _write(folder, args, gpus)
    except (OpError, OSError) as error:
        if read_json(folder.keeper) is None and not held.Held(folder.state_dir, folder.run).records():
            give_back(folder)
            folder.remove()
        return error
    return None


def _others_locked() -> ContextManager[None]:
    return contextlib.nullcontext() if notices.problem() else notices.locked()


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
        "notice": before.get("notice", "") if before else "",
        "by": before.get("by", "") if before else "",
    }
    write_json(path_of(folder), record)
    _sweep()
    announce(folder)


def hand_over(folder: RunFolder, by: str) -> None:
    """What this run kept is used by another run from now on, or by itself again: that is the one to be told of."""
    by = "" if by == folder.run else by
    with _telling:
        record = read_json(path_of(folder))
        if record is not None and record.get("by", "") != by:
            write_json(path_of(folder), {key: value for key, value in {**record, "by": by}.items() if key != "format"})


def announce(folder: RunFolder) -> None:
    """Tell other accounts how this run's lease stands: who holds it, and that it was renewed. Where that cannot be done, nobody is told."""
    with _telling:
        record = read_json(path_of(folder))
        if record is not None and not notices.problem():
            _post(folder, record)


def _post(folder: RunFolder, record: Dict[str, Any]) -> None:
    told = {key: record[key] for key in ("run", "holder", "gpus", "since", "hold_s", "helper", "boot_id")}
    keeper = keeper_link.living(folder)
    told["keeper"] = {key: keeper[key] for key in ("pid", "start")} if keeper else None
    told["expires"], told["pids"], told["by"] = folder.expires(), notices.namespace(), record.get("by", "")
    with contextlib.suppress(OSError):  # a full disk: the doctor tells of it
        path = notices.post(record["notice"], told)
        if path != record["notice"]:
            write_json(path_of(folder), {key: value for key, value in {**record, "notice": path}.items() if key != "format"})


def _sweep() -> None:
    """Take away our own notices whose processes were killed, or whose host was restarted."""
    for notice in notices.read_all():
        if notice.uid == os.geteuid() and _gone(notice):
            notices.withdraw(notice.path)


def overlap(ours: Optional[List[int]], theirs: Optional[List[int]]) -> bool:
    """Whether two sets of GPUs have one in common; null is all, and an empty one has none in common with that either."""
    if ours is None or theirs is None:
        return ours != [] and theirs != []
    return bool(set(ours) & set(theirs))


def leases(state_dir: str) -> List[Dict[str, Any]]:
    """All leases on this host, oldest first; `stale` says why one does not count, empty when it does."""
    found = []
    for run in run_names(state_dir):
        folder = RunFolder(state_dir, run)
        record = read_sound(path_of(folder))
        if record is not None:
            with contextlib.suppress(FileNotFoundError), unless_damaged():  # its folder is removed at this moment: it is given back
                found.append(_view(folder, record))
    return sorted(found, key=lambda lease: lease["since"])


def leases_elsewhere(state_dir: str) -> List[Dict[str, Any]]:
    """What runs say that have another state folder: those of other accounts, and of this one with another $XDG_STATE_HOME."""
    if notices.problem():
        return []
    here = set(run_names(state_dir))
    found = [_view_of(notice) for notice in notices.read_all() if notice.uid != os.geteuid() or notice.record["run"] not in here]
    return sorted(found, key=lambda lease: lease["since"])


def _view_of(notice: notices.Notice) -> Dict[str, Any]:
    record = notice.record
    keeper = notices.alive(record["keeper"], record["pids"]) is not False
    until = record["expires"] or notice.renewed + (record["hold_s"] if keeper else min(record["hold_s"], ALONE_S))
    shown = {key: record[key] for key in ("run", "holder", "gpus", "since", "by")}
    stale = _gone(notice) or _late(until)
    account = "" if notice.uid == os.geteuid() else procs.user_name(notice.uid)
    return {**shown, "renewed": notice.renewed, "until": until, "keeper": keeper, "stale": stale, "account": account}


def _gone(notice: notices.Notice) -> str:
    """Why its holder is surely gone; empty when it is not, or when that cannot be seen."""
    record = notice.record
    return _ended(record["boot_id"], any(notices.alive(record[who], record["pids"]) is not False for who in ("helper", "keeper")))


def _view(folder: RunFolder, record: Dict[str, Any]) -> Dict[str, Any]:
    keeper = keeper_link.living(folder) is not None
    renewed, expires = folder.last_renewal(), folder.expires()
    hold_s = record["hold_s"] if keeper else min(record["hold_s"], ALONE_S)
    until = renewed + hold_s if expires is None else expires
    shown = {**{key: record[key] for key in ("run", "holder", "gpus", "since")}, "by": record.get("by", "")}
    return {**shown, "renewed": renewed, "until": until, "keeper": keeper, "stale": _stale(record, keeper, until), "account": ""}


def _stale(record: Dict[str, Any], keeper: bool, until: float) -> str:
    helper = record["helper"]
    return _ended(record["boot_id"], keeper or procs.is_alive(helper["pid"], helper["start"] or 0)) or _late(until)


def _ended(boot_id: str, alive: bool) -> str:
    if boot_id != procs.boot_id():
        return "the host was restarted since"
    return "" if alive else "its connection and its keeper are gone"


def _late(until: float) -> str:
    return "nobody renewed it in time" if time.time() > until else ""


def _held(other: Dict[str, Any]) -> str:
    gpus = "all GPUs" if other["gpus"] is None else "GPUs %s" % ", ".join(map(str, other["gpus"]))
    account = " (account %s)" % other["account"] if other["account"] else ""
    return "%s%s has %s of this host, in run %s" % (other["holder"], account, gpus, other["by"] or other["run"])


def lease_list(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[Dict[str, Any]], bytes]:
    """All leases on this host: those of this state folder, then what others say."""
    return [*leases(ctx.state_dir), *leases_elsewhere(ctx.state_dir)], b""


def give_back(folder: RunFolder) -> None:
    """A run's lease is over, while something else of it may stay."""
    with _telling:
        withdraw(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path_of(folder))


def lease_give_back(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """The run has nothing left to do with its GPUs; its keeper and its logs stay. Answers `given`: whether it had a lease."""
    folder = RunFolder(ctx.state_dir, args["run"])
    if not os.path.exists(path_of(folder)):
        return {"given": False}, b""
    with locked(undo_lock(ctx.state_dir)):
        give_back(folder)
    return {"given": True}, b""


def withdraw(folder: RunFolder) -> None:
    """Tell other accounts of it no more."""
    with contextlib.suppress(OpError):  # one that cannot be read has no notice that we know of
        record = read_json(path_of(folder))
        if record is not None and record.get("notice"):
            notices.withdraw(record["notice"])


def give_back_ours() -> None:
    """This helper ends: what it took goes back, unless the run has a keeper, which then holds it."""
    for state_dir, run in list(_taken):
        _taken.discard((state_dir, run))
        with contextlib.suppress(OpError, OSError):  # nobody is left to be told; a lease without its process does not count
            _give_back(RunFolder(state_dir, run))


def _give_back(folder: RunFolder) -> None:
    if not os.path.exists(path_of(folder)):
        return  # retired already: taking the locks would make its folders again
    try:
        with locked(undo_lock(folder.state_dir), LAST_S), locked(folder.lock, LAST_S):
            record = read_json(path_of(folder))
            if read_json(folder.keeper) is not None or (record is not None and record["helper"]["pid"] != os.getpid()):
                return
            give_back(folder)  # without a record: it was retired while we waited, and the lock made its folder again
            if held.Held(folder.state_dir, folder.run).records():  # a command's end lies there for the next helper
                return
            folder.remove()
    finally:
        remove_if_empty(folder.state_dir)


OPS = {"lease_take": lease_take, "lease_list": lease_list, "lease_give_back": lease_give_back}
