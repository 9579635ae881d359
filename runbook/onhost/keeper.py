"""The keeper: one process per run and host, parent of what the run starts there, owner of its undo timers and expiries.

    serving ── timer due ──> cleaning ── nothing owed ──> gone (ended.json says what it did)
       │  ^                     └── patches wait for their own time ──> serving
       │  └─ requests, SIGCHLD, a look at least every 10 s while something lives
       └── retire, or nothing owed and no renewal for `idle_s` ──> gone

It sleeps in select until one of these; its files tell the same to whoever comes after it. Requests are one JSON object each over
a Unix socket in the run's folder (mode 0700): {format, op, …} -> {ok: …} or {error: {code, message, hint, data}}.
"""

import json
import os
import selectors
import signal
import sys
import time
from typing import Any, Dict, Generator, List, Optional, Set, Tuple

from . import launches, lease, patches, procs, tree
from .errors import OpError
from .keeper_link import listen, receive
from .launches import Launch
from .runfolder import FORMAT, RunFolder, read_json, write_json
from .stopping import climb
from .timers import Due, next_due

LOOK_S = 10.0
FIRST_LOOK_S = 0.3  # a launch may have moved to its cgroup and its interpreter by then; the looks after it come at twice the age
PEER_S = 5.0
RETRY_S = 5.0
_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


def main(stream: Any, args: Dict[str, Any]) -> None:
    """Detach from the helper and serve. `args`: state_dir, run, idle_s. Prints {ok} or {error} once it listens."""
    reading, writing = os.pipe()
    if os.fork() > 0:
        os.close(writing)
        with os.fdopen(reading, "rb") as said:
            sys.stdout.buffer.write(said.read() or b'{"error": {"code": "failed", "message": "the keeper died while it started"}}')
            sys.stdout.buffer.flush()
        os._exit(0)
    os.close(reading)
    os.setsid()
    try:
        keeper = Keeper(RunFolder(args["state_dir"], args["run"]), float(args["idle_s"]))
        keeper.open()
    except Exception as error:  # whoever waits on the pipe must hear why
        os.write(writing, json.dumps({"error": {"code": "failed", "message": "the keeper could not start: %s" % error}}).encode())
        os._exit(1)
    _leave_the_streams(keeper.folder.path)
    os.write(writing, b'{"ok": {}}')
    os.close(writing)
    keeper.serve()
    os._exit(0)


def _become_subreaper() -> bool:
    """Orphans below us come to us instead of to init. False where Python was built without ctypes: they go to init then."""
    try:
        import ctypes
    except ImportError:
        return False
    return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _leave_the_streams(folder: str) -> None:
    """stdin and stdout from and to null; a bug's traceback goes to a file of the run."""
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(os.path.join(folder, "keeper.err"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(errors)
    os.chdir("/")


class Keeper:
    """State in memory is only a shortcut to the run's files, but for the exit status of live children."""

    def __init__(self, folder: RunFolder, idle_s: float) -> None:
        self.folder, self.idle_s = folder, idle_s
        self.launches: Dict[str, Launch] = {}
        self.selector = selectors.DefaultSelector()
        self.gave_up: Set[str] = set()  # patches that a conflict keeps from being restored
        self.cleaning: Optional[Generator[float, None, None]] = None
        self.acts: List[Dict[str, Any]] = []
        self.done = False
        self._renewal = (0.0, 0.0)  # mtime of `renewed`, and our monotonic clock for it
        self._next_look = float("inf")
        self._told_to_end = False

    def open(self) -> None:
        """Take over what is on disk, listen, and say who we are."""
        subreaper = _become_subreaper()
        self.acts = list((read_json(self.folder.ended) or {}).get("acts", ()))
        self._catch_signals()
        for record in self.folder.launch_records():
            if "ended" not in record:
                self.launches[record["id"]] = Launch(self.folder, record, adopted=True)
                self._next_look = time.monotonic() + FIRST_LOOK_S
        self.server = listen(self.folder)
        self.selector.register(self.server, selectors.EVENT_READ)
        pid = os.getpid()
        who = {"run": self.folder.run, "pid": pid, "start": procs.start_ticks(pid), "boot_id": procs.boot_id(), "subreaper": subreaper}
        write_json(self.folder.keeper, who)

    def _catch_signals(self) -> None:
        self._woken, waker = os.pipe()
        for fd in (self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # a handler, since children would inherit an ignored signal
        signal.signal(signal.SIGTERM, self._end_soon)
        self.selector.register(self._woken, selectors.EVENT_READ)

    def _end_soon(self, *_: Any) -> None:
        self._told_to_end = True

    # the loop ----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Until there is nothing left to keep."""
        while not self.done:
            try:
                self._reap()
                wait_s = self._act()
            except (OSError, OpError) as error:  # a full disk, a damaged file: everything else still has to be kept
                sys.stderr.write("%s: %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%S"), error))
                sys.stderr.flush()
                wait_s = RETRY_S
            if self.done:
                break
            for key, _ in self.selector.select(wait_s):
                if key.fileobj is self.server:
                    self._answer()
                else:
                    os.read(self._woken, 4096)
        self._reap()
        self.server.close()
        lease.withdraw(self.folder)

    def _act(self) -> Optional[float]:
        """Do what is due; seconds until the next thing, None when only a request can bring one."""
        now = time.monotonic()
        if self.cleaning is not None:
            return self._go_on()
        if now >= self._next_look:
            self._look(now)
        due = self._due(now)
        if self._told_to_end and self._owes():
            due = Due(now, "terminated")
        if due.at <= now:
            if due.why == "idle":
                self.done = True
                return None
            self.cleaning = self._clean(due.why)
            return 0.0
        next_at = min(due.at, self._next_look)
        self.done = self._told_to_end
        return None if next_at == float("inf") else min(next_at - now, 86400.0)

    def _go_on(self) -> Optional[float]:
        assert self.cleaning is not None
        try:
            return next(self.cleaning)
        except StopIteration:
            self.cleaning = None
            self.done = not self._owes()
            return 0.0

    def _owes(self) -> bool:
        return bool(self._undo()) or any(launch.stops for launch in self.launches.values())

    def _undo(self) -> List[Dict[str, Any]]:
        found = patches.open_records(self.folder.state_dir, self.folder.run)
        return [record for record in found if record["id"] not in self.gave_up]

    def _due(self, now: float) -> Due:
        """Timers on our monotonic clock, so that a clock that is set does not fire them."""
        renewed, expires = self.folder.last_renewal(), self.folder.expires()
        if renewed != self._renewal[0]:
            self._renewal = (renewed, now - max(0.0, time.time() - renewed))
        if expires is not None:
            expires = now + expires - time.time()
        stops = [launch.record["suspend_for_s"] for launch in self.launches.values() if launch.stops]
        watched = any(launch.live for launch in self.launches.values())
        return next_due(self._renewal[1], expires, stops, [record["undo_after_s"] for record in self._undo()], self.idle_s, watched)

    # children ----------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        by_pid = {launch.record["pid"]: launch for launch in self.launches.values() if launch.live and not launch.adopted}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in by_pid:
                by_pid[pid].finish(status, usage.ru_maxrss * 1024)

    def _look(self, now: float) -> None:
        table, live = procs.process_table(), [launch for launch in self.launches.values() if launch.live or launch.unsaved]
        for launch in live:
            if launch.unsaved:
                launch.save()
            if launch.adopted and not procs.is_alive(launch.record["pid"], launch.record["start"]):
                launch.finish(None, None)
            else:
                launch.look(self._members(launch, table))
        age_s = min((time.time() - launch.record["started"] for launch in live), default=float("inf"))
        self._next_look = now + min(LOOK_S, max(FIRST_LOOK_S, age_s)) if live else float("inf")

    def _members(self, launch: Launch, table: tree.Table) -> Set[int]:
        return tree.members(launch.record, table, os.getpid(), [other.record for other in self.launches.values()])

    def _find(self, launch: Launch) -> Set[Tuple[int, int]]:
        self._reap()
        table = procs.process_table()
        return {(pid, table[pid].start) for pid in self._members(launch, table)}

    # cleaning up by itself ---------------------------------------------------------------------------------------

    def _clean(self, why: str) -> Generator[float, None, None]:
        """Stop launches, newest first, then restore: a server that is still importing must not see the file change back."""
        stopped = []
        for launch in [launch for launch in reversed(list(self.launches.values())) if launch.stops]:
            launch.note_kill("undo" if why == "undo" else "expiry")
            left = yield from climb(lambda launch=launch: self._find(launch), launch.record["ladder"])  # type: ignore[misc]
            yield from self._await_record(launch)
            stopped.append({"id": launch.record["id"], "pid": launch.record["pid"], "left": left})
            if launch.live:
                launch.record["at_end"] = "left"  # it cannot be ended; asking again for ever would not help
        restored = [] if why == "lost" else patches.restore(self.folder.state_dir, self.folder.run)
        self.gave_up |= {report["id"] for report in restored if report["state"] in ("conflict", "missing")}
        self.acts.append({"t": time.time(), "why": why, "stopped": stopped, "restored": restored})
        write_json(self.folder.ended, {"run": self.folder.run, "acts": self.acts})

    def _await_record(self, launch: Launch) -> Generator[float, None, None]:
        """Its end on record: a zombie that the last look already took for gone still has its exit status to give."""
        for _ in range(100):
            self._reap()
            if not launch.live or procs.is_alive(launch.record["pid"], launch.record["start"]):
                return
            if launch.adopted:
                launch.finish(None, None)
            yield 0.01

    # requests ----------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        connection, _ = self.server.accept()
        with connection:
            connection.settimeout(PEER_S)
            try:
                answer = self._perform(json.loads(receive(connection).decode("utf-8", "surrogatepass")))
            except OpError as error:
                answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint, "data": error.data}}
            except (OSError, ValueError) as error:  # a peer that died, or one that does not speak this
                answer = {"error": {"code": "bad_request", "message": "unreadable request: %s" % error}}
            try:
                connection.sendall(json.dumps(answer).encode("ascii"))
            except OSError:
                pass  # the peer is gone; what it asked for is on disk

    def _perform(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if request.get("format") != FORMAT:
            raise OpError("unsupported", "the keeper speaks format %d" % FORMAT, "use the version of runbook that started this run")
        op = request.get("op")
        if op not in ("launch", "note_kill", "poke", "retire"):
            raise OpError("bad_request", "the keeper has no operation `%s`" % op)
        if self.cleaning is not None and op != "note_kill":
            hint = "see ended.json in %s" % self.folder.path
            raise OpError("busy", "run %s is being cleaned up by its keeper: its time was over" % self.folder.run, hint)
        return {"ok": getattr(self, "_op_" + op)(request)}

    def _op_launch(self, request: Dict[str, Any]) -> Dict[str, Any]:
        id = request["spec"]["id"]
        known = read_json(self.folder.launch_file(id))
        if known is not None and known.get("token") and known["token"] == request["spec"].get("token"):
            return known  # asked again, since the link was lost before our answer arrived
        before = self.launches.get(id)
        if before is not None and before.live:
            lives = "launch `%s` of run %s already lives, pid %d" % (id, self.folder.run, before.record["pid"])
            raise OpError("exists", lives, "kill it first")
        self.launches.pop(id, None)
        launch = launches.start(self.folder, request["spec"], request["env"])
        self.launches[id] = launch
        self.folder.renew()  # who launches is alive, however long the start took
        self._next_look = time.monotonic() + FIRST_LOOK_S
        return launch.record

    def _op_note_kill(self, request: Dict[str, Any]) -> Dict[str, Any]:
        launch = self.launches.get(request["id"])
        if launch is not None:
            launch.note_kill(request["by"])
        return {"noted": launch is not None}

    def _op_poke(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {}  # what matters is that the loop turns and reads the files again

    def _op_retire(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self.done = True
        return {}
