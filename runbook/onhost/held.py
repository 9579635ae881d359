"""Commands that outlive their link: what a helper without a controller leaves on record, and how the next helper takes it over.

A helper whose controller went without a word, or whose controller is back over another link (SIGUSR1), stays until the commands
that were given a name have ended. `STATE_DIR/runs/RUN/held/` has of each:

    NAME.json    {helper: [pid, start], process: [pid, start]}; once it has ended also {answer}, as `run` gives it
    NAME.out     then: what it printed, the answer's blob
    NAME.live    meanwhile: what it prints, for people, at most MOST_LIVE bytes

and between two helpers PID-START.ask, which the old one renames to .told when all that it was ever given is on record.
"""

import glob
import os
import signal
import time
from typing import Any, Dict, List, Optional, Tuple

from . import procs
from .errors import OpError
from .files import atomic_write, make_private
from .ladder import parse_ladder, session_members, signal_session
from .runfolder import RunFolder, checked_name, read_json, write_json

MOST_LIVE = 1 << 20
TOLD_S = 5.0  # an old helper writes a few small files
END_S = 6.0  # a helper that is told to end gives its commands four seconds
LOOK_S = 0.1

Id = Tuple[int, int]


class Held:
    """The records of one run's commands."""

    def __init__(self, state_dir: str, run: str) -> None:
        self.run = RunFolder(state_dir, run)
        self.path = os.path.join(self.run.path, "held")

    def file(self, name: str, suffix: str) -> str:
        """A command's file."""
        return os.path.join(self.path, checked_name(name, "command") + suffix)

    def begin(self, name: str, helper: Id, process: Optional[Id]) -> None:
        """It goes on without a controller. Raises OpError where that cannot be written down."""
        make_private(self.path)
        write_json(self.file(name, ".json"), {"helper": list(helper), "process": process and list(process)})

    def end(self, name: str, answer: Dict[str, Any], blob: bytes) -> None:
        """How it ended. The bytes first: whoever sees the answer can read them."""
        make_private(self.path)
        atomic_write(self.file(name, ".out"), blob, 0o600)
        record = read_json(self.file(name, ".json")) or {"helper": [0, 0], "process": None}
        record.pop("format", None)
        write_json(self.file(name, ".json"), {**record, "answer": answer})

    def read(self, name: str) -> Optional[Dict[str, Any]]:
        """The record, if there is one."""
        return read_json(self.file(name, ".json"))

    def records(self) -> List[Dict[str, Any]]:
        """All records of this run."""
        found = [read_json(path) for path in sorted(glob.glob(os.path.join(glob.escape(self.path), "*.json")))]
        return [record for record in found if record is not None]

    def leave(self) -> None:
        """Remove the folders that only we made, when nothing is in them."""
        for path in (self.path, self.run.path, os.path.dirname(self.run.path), self.run.state_dir):
            try:
                os.rmdir(path)
            except OSError:
                return


def asked(state_dir: str, helper: Id) -> List[str]:
    """What a new helper wrote to ask this one to stay behind."""
    return glob.glob(os.path.join(glob.escape(state_dir), "runs", "*", "held", "%d-%d.ask" % helper))


def supersede(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """End the service of the helper whose link was lost. `state`: told (all it was given is on record), gone, or stuck."""
    helper = (int(args["helper"][0]), int(args["helper"][1]))
    if not procs.is_alive(*helper):
        return {"state": "gone"}, b""
    held = Held(ctx.state_dir, args["run"])
    make_private(held.path)
    ask = os.path.join(held.path, "%d-%d.ask" % helper)
    told = ask[:-4] + ".told"
    atomic_write(ask, b"", 0o600)
    try:
        os.kill(helper[0], signal.SIGUSR1)
        state = _await_told(ctx, helper, told)
    except ProcessLookupError:
        state = "gone"
    finally:
        for path in (ask, told):
            if os.path.exists(path):
                os.unlink(path)
        held.leave()
    return {"state": state}, b""


def _await_told(ctx: Any, helper: Id, told: str) -> str:
    deadline = time.monotonic() + TOLD_S
    while True:
        alive = procs.is_alive(*helper)
        if os.path.exists(told):
            return "told"
        if not alive:
            return "gone"
        if time.monotonic() > deadline or ctx.cancelled.wait(0.01):
            return "stuck"


def run_held(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Wait for a command that another helper follows; answers as `run` does. Cancelled, it ends the command.

    Raises OpError not_found when nobody wrote it down, failed when its helper died: then nobody knows how it ended.
    """
    held, name = Held(ctx.state_dir, args["run"]), args["name"]
    tail = _Tail(ctx, held.file(name, ".live"))
    ending_until: Optional[float] = None
    while True:
        record = held.read(name)
        if record is None:
            raise OpError("not_found", "nothing is known here of the command `%s`" % name)
        alive = procs.is_alive(*record["helper"])
        if "answer" not in record and not alive:
            record = held.read(name) or record  # it may have ended between the two looks
        tail.look()
        if "answer" in record:
            return _answer(held, name, record["answer"])
        if not alive:
            raise OpError("failed", "the helper that followed the command `%s` is gone" % name, data={"process": record["process"]})
        if ctx.cancelled.is_set() and ending_until is None:
            os.kill(record["helper"][0], signal.SIGTERM)
            ending_until = time.monotonic() + END_S
        if ending_until is not None and time.monotonic() > ending_until:
            raise OpError("failed", "the helper that follows the command `%s` does not end" % name)
        time.sleep(LOOK_S) if ending_until is not None else ctx.cancelled.wait(LOOK_S)


def held_names(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[List[str], bytes]:
    """Names of the commands of a run whose end can be had: it is on record, or their helper still follows them."""
    held = Held(ctx.state_dir, args["run"])
    paths = glob.glob(os.path.join(glob.escape(held.path), "*.json"))
    found = {name: held.read(name) for name in (os.path.basename(path)[: -len(".json")] for path in paths)}
    return sorted(name for name, one in found.items() if one and ("answer" in one or procs.is_alive(*one["helper"]))), b""


def _answer(held: Held, name: str, answer: Dict[str, Any]) -> Tuple[Dict[str, Any], bytes]:
    if "error" in answer:
        raise OpError(**answer["error"])
    with open(held.file(name, ".out"), "rb") as source:
        return answer["ok"], source.read()


class _Tail:
    """Passes on what is added to a file."""

    def __init__(self, ctx: Any, path: str) -> None:
        self._ctx, self._path, self._at = ctx, path, 0

    def look(self) -> None:
        """What is new, if there is room for it on the link."""
        try:
            with open(self._path, "rb") as source:
                source.seek(self._at)
                data = source.read(1 << 16)
        except OSError:
            return
        if data and self._ctx.has_room():
            self._at += len(data)
            self._ctx.emit({"stream": "stdout", "withheld": 0}, data)


def end_all(held: Held) -> List[str]:
    """End the commands that still run; answers the processes that did not end."""
    helpers = {tuple(record["helper"]) for record in held.records() if "answer" not in record}
    for helper in helpers:
        if procs.is_alive(*helper):
            os.kill(helper[0], signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while any(procs.is_alive(*helper) for helper in helpers) and time.monotonic() < deadline:
        time.sleep(0.02)
    processes = [record["process"] for record in held.records() if "answer" not in record and record["process"]]
    for pid, start in processes:
        _end_orphan(pid, start)
    return [
        "pid %d (%s): a command of this run, still runs" % (pid, procs.title(pid)) for pid, start in processes if procs.is_alive(pid, start)
    ]


def _end_orphan(pid: int, start: int) -> None:
    """End the session of a command whose helper was killed."""
    for rung in parse_ladder(("TERM 1s", "KILL 2s")):
        if not procs.is_alive(pid, start):
            return
        signal_session(session_members(pid), rung)
        deadline = time.monotonic() + rung.wait_s
        while procs.is_alive(pid, start) and time.monotonic() < deadline:
            time.sleep(0.02)


OPS = {"supersede": supersede, "run_held": run_held, "held_names": held_names}
