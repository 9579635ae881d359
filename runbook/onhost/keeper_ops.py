"""What the helper does for and with a run's keeper. Everything here also works on the files of a keeper that died."""

import json
import os
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from . import boot, dumps, held, keeper_link, lease, patches, procs, tree
from .errors import OpError
from .runfolder import RunFolder, checked_name, locked, read_json, remove_if_empty, write_json
from .spawn import checked_cwd

START_S = 20.0
END_S = 5.0
RECORD_S = 1.0  # from a child's death to its record, when the keeper lives
IDLE_S = 600.0
_SHOWN = ("id", "pid", "start", "sid", "log", "log_inode", "log_offset", "argv", "cwd", "interpreter", "started", "ended", "exit", "signal")
_MORE = ("oom_killed", "oom_source", "max_rss", "stopped_by", "exit_unknown", "at_end", "dump_env")

Reply = Tuple[Dict[str, Any], bytes]


def keeper_ensure(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """Start the run's keeper if it does not live, and renew it. `suspend_for_s` counts per launch, from its own spec."""
    folder = RunFolder(ctx.state_dir, args["run"])
    ensure(folder, float(args.get("idle_s", IDLE_S)))
    return state_of(folder), b""


def ensure(folder: RunFolder, idle_s: float = IDLE_S) -> None:
    """The same without the answer. Two at once start one keeper."""
    folder.create()
    with locked(folder.lock, START_S + END_S):
        folder.create()  # again, since a retirement that held the lock before us took it away
        folder.renew()
        alive = keeper_link.living(folder)
        if alive is None or _asked(folder, alive, {"op": "poke"}) is None:
            _start(folder, idle_s)
    lease.announce(folder)


def _asked(folder: RunFolder, alive: Dict[str, Any], request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The keeper's answer; None when it was just leaving, or was killed, and is gone now."""
    try:
        return keeper_link.ask(folder, request)
    except OpError as error:
        if error.code != "failed" or not _gone_within(alive, END_S):
            raise
        return None


def _start(folder: RunFolder, idle_s: float) -> None:
    """A process of its own from our own sources; its argv says nothing that a pattern could match."""
    args = {"state_dir": folder.state_dir, "run": folder.run, "idle_s": idle_s}
    env = {name: value for name, value in procs.own_environ().items() if name not in ("RUNBOOK_RUN", "RUNBOOK_LAUNCH")}
    try:
        done = subprocess.run(
            [sys.executable, boot.FLAGS, boot.STUB],
            input=boot.payload(boot.own_sources(), "keeper", args),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=START_S,
            env=env,
        )
        answer = json.loads(done.stdout.decode("utf-8"))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        said = "the keeper of run %s did not start: %s" % (folder.run, error)
        raise OpError("failed", said, "is there memory and disk space?") from error
    if "error" in answer:
        raise OpError(answer["error"]["code"], answer["error"]["message"], done.stderr.decode("utf-8", "replace")[-500:])


def keeper_state(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """The run on this host, from its files."""
    return state_of(_existing(ctx, args)), b""


def _existing(ctx: Any, args: Dict[str, Any]) -> RunFolder:
    folder = RunFolder(ctx.state_dir, args["run"])
    if not folder.exists():
        raise OpError("not_found", "run %s left nothing on this host" % folder.run, "it never acted here, or it is cleaned up")
    return folder


def state_of(folder: RunFolder) -> Dict[str, Any]:
    """Keeper, launches and open undo records."""
    record, alive = read_json(folder.keeper) or {"pid": 0, "start": 0}, keeper_link.living(folder) is not None
    return {
        "run": folder.run,
        "pid": record["pid"],
        "start": record["start"],
        "alive": alive,
        "renewed": folder.last_renewal(),
        "expires": folder.expires(),
        "launches": [_view(launch, alive) for launch in folder.launch_records()],
        "undo": [patches.view(undo) for undo in patches.open_records(folder.state_dir, folder.run)],
        "ended": (read_json(folder.ended) or {}).get("acts"),
    }


def keeper_renew(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """The controller lives: timers and expiries count from now. A keeper that died is replaced, unless the run was retired.

    `by`: the run that uses from now on what this one kept.
    """
    folder = _existing(ctx, args)
    folder.renew()
    if args.get("by"):
        lease.hand_over(folder, str(args["by"]))
    lease.announce(folder)
    alive = keeper_link.living(folder)
    if alive is not None and _asked(folder, alive, {"op": "poke"}) is not None:
        return {"replaced": False}, b""
    with locked(folder.lock, START_S + END_S):
        if read_json(folder.keeper) is None and os.path.exists(lease.path_of(folder)):
            return {"replaced": False}, b""  # it has a lease and no keeper yet
        if read_json(folder.keeper) is None:  # it was retired while we waited; the lock itself made the folder again
            if not held.Held(folder.state_dir, folder.run).records():
                folder.remove()
            return {"replaced": False}, b""
        if keeper_link.living(folder) is not None:  # it was only just starting
            return {"replaced": False}, b""
        _start(folder, IDLE_S)
    lease.announce(folder)
    return {"replaced": True}, b""


def keeper_suspend(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """Hold everything until `expires` (unix time); then the keeper stops launches and restores. The next renewal takes it back."""
    folder = _existing(ctx, args)
    ensure(folder)  # first, since it counts as a renewal
    write_json(folder.suspended, {"expires": float(args["expires"])})
    lease.announce(folder)
    keeper_link.ask(folder, {"op": "poke"})
    return {}, b""


def keeper_note_kill(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """Our own kill is about to reach a launch: if it ends now, `by` ended it. A dead keeper notes nothing, and records no end either."""
    folder = _existing(ctx, args)
    alive = keeper_link.living(folder)
    if alive is None:
        return {"noted": False}, b""
    return _asked(folder, alive, {"op": "note_kill", "id": args["id"], "by": args["by"]}) or {"noted": False}, b""


def launch(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """Start a process under the run's keeper."""
    folder = RunFolder(ctx.state_dir, args["run"])
    checked_name(args["id"], "launch")
    cwd = os.path.abspath(checked_cwd(args.get("cwd") or "") or os.getcwd())
    log = args.get("log") or ""
    spec = {
        "id": args["id"],
        "argv": list(args.get("argv") or ()),
        "shell": args.get("shell") or "",
        "prelude": args.get("prelude") or "",
        "cwd": cwd,
        "log": os.path.join(cwd, os.path.expanduser(log)) if log else "",
        "at_end": args.get("at_end", "stop"),
        "ladder": list(args.get("ladder") or ("TERM 15s", "KILL 10s")),
        "suspend_for_s": float(args.get("suspend_for_s", 7200.0)),
        "kind": args.get("kind", "launch"),
        "token": args.get("token", ""),
    }
    env = {**procs.own_environ(), "RUNBOOK_RUN": folder.run, "RUNBOOK_LAUNCH": args["id"], **(args.get("env") or {})}
    ensure(folder)
    spec["no_core"] = args.get("dumps", "off") != "off"
    spec["dump_env"] = dumps.prepare(os.path.join(folder.path, "dumps", args["id"]), env) if args.get("dumps") == "full" else {}
    env.update(spec["dump_env"])
    return _view(keeper_link.ask(folder, {"op": "launch", "spec": spec, "env": env}), True), b""


def launch_state(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """One launch; of one that has just died, with its end, which the keeper writes within a moment."""
    folder = _existing(ctx, args)
    deadline = time.monotonic() + RECORD_S
    while True:
        record = read_json(folder.launch_file(args["id"]))
        if record is None:
            raise OpError("not_found", "run %s has no launch `%s` on this host" % (folder.run, args["id"]))
        alive = keeper_link.living(folder) is not None
        if "ended" in record or procs.is_alive(record["pid"], record["start"]) or not alive or time.monotonic() > deadline:
            return _view(record, alive), b""
        time.sleep(0.01)


def _view(record: Dict[str, Any], keeper_alive: bool) -> Dict[str, Any]:
    """A launch as the controller is told. One that died after its keeper has an end, but nobody knows how."""
    shown = {key: record[key] for key in _SHOWN + _MORE if key in record}
    if "ended" not in record and not keeper_alive and not procs.is_alive(record["pid"], record["start"]):
        shown.update(ended=time.time(), exit_unknown="its keeper is gone: nobody saw its exit status")
    return shown


def keeper_retire(ctx: Any, args: Dict[str, Any], blob: bytes) -> Reply:
    """End the keeper and remove the run's folder, unless something stays: `left`, though it should not; `kept`, as its launch asked."""
    folder = RunFolder(ctx.state_dir, args["run"])
    if not folder.exists():
        return {"left": [], "kept": []}, b""
    with locked(folder.lock, START_S):
        alive = keeper_link.living(folder)
        kept, left = _staying(folder, alive["pid"] if alive else None)
        left += held.end_all(held.Held(folder.state_dir, folder.run))
        if alive is not None:
            _asked(folder, alive, {"op": "retire"})
            if not _gone_within(alive, END_S):
                left.append("pid %d: the run's keeper did not end" % alive["pid"])
        lease.give_back(folder)
        if not left and not kept:
            folder.remove()
    if not left and not kept:
        remove_if_empty(folder.state_dir)
    return {"left": left, "kept": kept}, b""


def _gone_within(process: Dict[str, Any], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while procs.is_alive(process["pid"], process["start"]):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _staying(folder: RunFolder, keeper_pid: Optional[int]) -> Tuple[List[str], List[str]]:
    """What is there when the keeper goes: (processes that were to be kept; other processes of launches, files that carry a patch)."""
    table, records = procs.process_table(), folder.launch_records()
    kept: List[str] = []
    left: List[str] = []
    for record in records:
        for pid in sorted(tree.members(record, table, keeper_pid, records)):
            told = "pid %d (%s): launch `%s`" % (pid, procs.title(pid), record["id"])
            if record["at_end"] == "keep":
                kept.append(told)
            else:
                left.append(told + ", still runs")
    for undo in patches.open_records(folder.state_dir, folder.run):
        left.append("%s: patch `%s` is not undone; the original lies in %s" % (undo["path"], undo["id"], undo["folder"]))
    return kept, left


OPS = {
    "keeper_ensure": keeper_ensure,
    "keeper_state": keeper_state,
    "keeper_renew": keeper_renew,
    "keeper_suspend": keeper_suspend,
    "keeper_retire": keeper_retire,
    "keeper_note_kill": keeper_note_kill,
    "launch": launch,
    "launch_state": launch_state,
}
