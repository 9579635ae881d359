"""The helper's main loop: requests from stdin, each on a thread of its own, answers to stdout.

    idle ── request ──> running ── ok | error ──> idle
                           │ cancel: ctx.cancelled is set, the operation ends itself and answers `failed`
    bye, TERM ──> every running operation is cancelled in a hurry, then the process exits
    stdin ends without bye, USR1 ──> the same, but for commands that were given a name: they go on to their end (`behind`)
    idle and nothing heard for SILENCE_S, not even `alive` ──> as when stdin ends: the link is dead and sshd has not noticed

The main thread only reads. An operation's module is imported when it is first asked for.
"""

import importlib
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import files, frames, logout, procs
from .behind import Behind
from .errors import OpError

OPS = {
    "ops_run": ("run",),
    "held": ("run_held", "supersede", "held_names"),
    "ops_proc": ("processes", "kill", "listeners"),
    "ops_servers": ("ports", "describe"),
    "ops_gpu": ("gpus",),
    "ops_files": ("read", "write", "hash", "glob", "remove", "marks"),
    "ops_log": ("scan",),
    "ops_net": ("relay",),
    "keeper_ops": (
        "keeper_ensure",
        "keeper_state",
        "keeper_renew",
        "keeper_suspend",
        "keeper_retire",
        "keeper_note_kill",
        "keeper_note_kill",
        "launch",
        "launch_state",
    ),
    "lease": ("lease_take", "lease_list", "lease_give_back"),
    "examine": ("examine",),
    "modules": ("find_module",),
    "ops_checkpoint": ("checkpoint", "parameters"),
    "undo": ("patch", "restore", "undo_list"),
    "sampler": ("sample",),
    "stacks": ("stacks", "put_py_spy"),
    "collectives": ("collectives",),
    "collect": ("collect",),
}
"""Which module has which operations; each module has `OPS = {"name": function(ctx, args, blob) -> (data, blob)}`."""

MOST_AT_ONCE = 128  # threads; relays hold one for as long as their connection lives
SILENCE_S = 300.0  # a controller says `alive` every 20 s
HURRY_S = 4.0  # how long running operations get to end themselves when the controller is gone

MODULE_OF = {op: module for module, ops in OPS.items() for op in ops}


class Context:
    """What an operation may use: its way to answer early, whether it is still wanted, where our files lie, what is visible."""

    protect: List[Dict[str, Any]] = []
    """The user's rules of what must be left alone."""

    def __init__(self, send: Callable[[Dict[str, Any], bytes], None], id: int, state_dir: str, scope: procs.Scope) -> None:
        self._send = send
        self.id = id
        self.state_dir = state_dir
        self.scope = scope
        self.cancelled = threading.Event()
        self.hurry = threading.Event()
        """The controller is gone: end within a second or two."""
        self.inbox: "queue.SimpleQueue[frames.Message]" = queue.SimpleQueue()
        """What the controller feeds to this operation."""
        self.hold: Tuple[str, str] = ("", "")
        """(run, name) of a command that shall outlive the loss of its link."""
        self.process: Optional[Tuple[int, int]] = None
        """The process that a command became."""
        self._instead: Optional[Callable[[bytes], None]] = None
        self._wake: Callable[[], None] = lambda: None
        self._wake_lock = threading.Lock()  # a wake must not come after `wake_by` took it back: its descriptor may be another's by then
        self._sent = 0
        self._acknowledged = 0

    def emit(self, event: Dict[str, Any], blob: bytes = b"") -> None:
        """Tell the controller something before the answer."""
        if self._instead is not None:
            self._instead(blob)
            return
        self._sent += len(blob)
        self._send({"id": self.id, "event": event}, blob)

    def has_room(self) -> bool:
        """Whether the controller keeps up with what is streamed to it."""
        return self._instead is not None or self._sent - self._acknowledged < frames.WINDOW

    def divert(self, instead: Callable[[bytes], None]) -> None:
        """The controller is gone: what is streamed goes there."""
        self._instead = instead

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the inbox gets something or the operation is cancelled, from any thread."""
        with self._wake_lock:
            self._wake = wake
            if self.cancelled.is_set():
                wake()

    def cancel(self, hurry: bool = False) -> None:
        """Ask the operation to end itself."""
        if hurry:
            self.hurry.set()
        self.cancelled.set()
        with self._wake_lock:
            self._wake()

    def feed(self, args: Dict[str, Any], blob: bytes) -> None:
        """Hand on what the controller sent to this operation."""
        if "credit" in args:
            self._acknowledged += args["credit"]
        else:
            self.inbox.put((args, blob))
        with self._wake_lock:
            self._wake()


class Pool:
    """Threads that are started when needed, kept, and bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task` on an idle thread, a new one, or the next that becomes idle. Only the main thread calls this."""
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, args=(task,), daemon=True).start()
        else:
            self._tasks.put(task)

    def _work(self, task: Callable[[], None]) -> None:
        while True:
            task()
            self._idle.release()
            task = self._tasks.get()


class Helper:
    """One helper process: its streams, what it runs."""

    def __init__(self, stream: Any, out_fd: int) -> None:
        self._stream = stream
        self._out_fd = out_fd
        self._out_lock = threading.Lock()
        self._pool = Pool(MOST_AT_ONCE)
        self._running: Dict[int, Context] = {}
        self.state_dir = files.state_dir()
        self.behind = Behind(self.state_dir)
        self.scope = procs.parse_scope(os.environ.get("RUNBOOK_SCOPE"))
        self.protect: List[Dict[str, Any]] = []
        self.heard_at = time.monotonic()

    def send(self, header: Dict[str, Any], blob: bytes = b"") -> None:
        """Write one message; a controller that is gone is noticed by the reader, not here."""
        try:
            data = frames.encode(header, blob)
        except frames.BrokenFrame as error:
            data = frames.encode({"id": header["id"], "error": _plain(OpError("unsupported", str(error), "ask for less"))})
        with self._out_lock:
            try:
                files.write_all(self._out_fd, data)
            except OSError:
                pass  # EPIPE: stdin ends as well

    def serve(self) -> bool:
        """Read requests until the controller says goodbye; False when stdin ended without."""
        while True:
            message = frames.read(self._stream.read)
            if message is None or self.behind.left:
                return False
            header, blob = message
            self.heard_at = time.monotonic()
            if header.get("op") == "bye":
                return True
            if header.get("op") == "alive":
                continue
            self.behind.heard()
            op, args = header.get("op"), header.get("args") or {}
            if not isinstance(args, dict) or (op not in ("cancel", "feed") and not isinstance(header.get("id"), int)):
                raise frames.BrokenFrame("a request without a number or with arguments that are none")
            if op in ("cancel", "feed"):
                context = self._running.get(args.get("id", 0))
                if context is not None and op == "cancel":
                    context.cancel()
                elif context is not None:
                    context.feed(args, blob)
                continue
            context = Context(self.send, header["id"], self.state_dir, self.scope)
            context.protect = self.protect
            context.hold = tuple(args.pop("hold", ("", "")))
            self._running[context.id] = context
            self._pool.submit(self._task(context, str(op), args, blob))

    def _task(self, context: Context, op: str, args: Dict[str, Any], blob: bytes) -> Callable[[], None]:
        def task() -> None:
            answer, data = perform(context, op, args, blob)
            if context.hold[1]:
                self.behind.ended(context.hold, answer, data)
            self._running.pop(context.id, None)
            self.send(dict(answer, id=context.id), data)

        return task

    def stay(self) -> None:
        """Our controller is gone: end what nobody will ask for, and stay until the named commands have ended."""
        running = list(self._running.values())
        named = [context for context in running if context.hold[1]]
        for context in running:
            if context not in named:
                context.cancel(hurry=True)
        if self.behind.leave(named):
            while any(context.id in self._running for context in named):
                time.sleep(0.05)

    def watch(self, silence_s: float) -> None:
        """Leave when the controller was silent for so long while nothing ran. Blocks."""
        while self._running or time.monotonic() - self.heard_at < silence_s:
            time.sleep(silence_s / 15)
        self.stay()
        self.end()
        os._exit(0)

    def end(self) -> None:
        """Cancel what still runs and give it HURRY_S to end itself."""
        for context in list(self._running.values()):
            context.cancel(hurry=True)
        deadline = time.monotonic() + HURRY_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)
        lease = sys.modules.get("%s.lease" % __package__)
        if lease is not None:
            lease.give_back_ours()


def perform(context: Any, op: str, args: Dict[str, Any], blob: bytes) -> Any:
    """Do one operation; every way it can end is an answer."""
    try:
        if context.cancelled.is_set():
            raise OpError("failed", "cancelled before it began")
        module = MODULE_OF.get(op)
        if module is None:
            raise OpError("bad_request", "there is no operation `%s`" % op, "use the controller's version that sent this helper")
        function = importlib.import_module("." + module, __package__).OPS[op]
        data, out = function(context, args, blob)
        return {"ok": data}, out
    except OpError as error:
        return {"error": _plain(error)}, b""
    except Exception as error:  # a bug of ours must be an answer, or its caller would wait for ever
        import traceback

        trace = traceback.format_exc()[-4000:]
        return {"error": _plain(OpError("failed", "%s: %s" % (type(error).__name__, error), data={"bug": trace}))}, b""


def _plain(error: OpError) -> Dict[str, Any]:
    return {"code": error.code, "message": error.message, "hint": error.hint, "data": error.data}


def hello(helper: Helper, received: float) -> Dict[str, Any]:
    """Who and where we are. `received` and `sent` (host unix time) let the controller bound the clocks' difference."""
    return {
        "format": frames.FORMAT,
        "hostname": os.uname().nodename,
        "user": procs.user_name(os.getuid()),
        "uid": os.getuid(),
        "pid": os.getpid(),
        "start": procs.start_ticks(os.getpid()) or 0,
        "python": sys.executable,
        "python_version": "%d.%d.%d" % sys.version_info[:3],
        "boot_id": procs.boot_id(),
        "state_dir": helper.state_dir,
        "home": os.path.expanduser("~"),
        "cpus": len(os.sched_getaffinity(0)),
        "cwd": procs.read_link("/proc/self/cwd") or "/",
        "scoped": helper.scope is not None,
        "abandoned": _abandoned(helper.state_dir),
        "logout": logout.ends_at_logout(),
        "received": received,
        "sent": time.time(),
    }


def _abandoned(state_dir: str) -> List[Dict[str, str]]:
    """Files that still carry a patch which nobody will undo by himself: after a reboot, or when a keeper was killed."""
    if not os.path.isdir(os.path.join(state_dir, "runs")):
        return []
    from . import keeper_link, patches, runfolder

    try:
        return patches.abandoned(state_dir, lambda run: keeper_link.living(runfolder.RunFolder(state_dir, run)) is not None)
    except (OpError, OSError) as error:
        return [{"run": "", "id": "", "path": "", "problem": str(error)}]


def main(stream: Any, args: Dict[str, Any]) -> None:
    """Serve until the controller is gone. `args`: {"nonce": text that marks where our output begins, "protect": rules, "silence_s"}."""
    received = time.time()
    if not os.path.isdir("/proc/self"):
        sys.exit("/proc is not mounted: processes cannot be seen here")
    files.stand_somewhere()
    out_fd = os.dup(1)
    os.dup2(2, 1)  # a stray print must not land between messages
    helper = Helper(stream, out_fd)
    helper.protect = args.get("protect") or []
    _leave_on_signals(helper)
    try:
        files.write_all(out_fd, args["nonce"].encode("ascii"))
        helper.send({"hello": hello(helper, received)})
        threading.Thread(target=helper.watch, args=(float(args.get("silence_s", SILENCE_S)),), daemon=True).start()
        if not helper.serve():
            helper.stay()
    finally:
        helper.end()
        os._exit(0)


def _leave_on_signals(helper: Helper) -> None:
    """End orderly on TERM, HUP and INT; on USR1 stay behind, as long as there is something to stay for.

    The kernel may give a signal to any thread, and Python runs its handler in the main one, which waits in a read: so the wakeup
    descriptor, written in whichever thread it is, wakes a thread of our own.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)

    def stay() -> None:
        helper.stay()
        helper.end()
        os._exit(0)

    def leave() -> None:
        number = os.read(wake_read, 1)[0]
        while number == signal.SIGUSR1:
            threading.Thread(target=stay, daemon=True).start()
            number = os.read(wake_read, 1)[0]
        helper.end()
        os._exit(128 + number)

    threading.Thread(target=leave, daemon=True).start()
