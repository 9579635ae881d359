"""Running a command: its own session, capped capture, a real end when its time is over, proof of what is left.

    running ── exits ──> draining (0.5 s for the output's end) ──> answered
       │ limit or cancel                                              ^
       └──> climbing: one rung after the other on its session ────────┘

The leader is reaped last: until then its pid, which names group and session, cannot be given to anyone else.
"""

import os
import select
import time
from typing import Any, Dict, List, Optional, Tuple

from . import procs, spawn
from .capture import Output
from .ladder import Rung, parse_ladder, session_members, signal_name, signal_session
from .wake import ChildExit, WakePipe

HELD_S = 0.5  # a background child may keep the output open for as long as it lives
HURRY_S = 1.0  # the longest rung once the controller is gone
LOOK_AGAIN_S = 3600.0  # poll() takes no time of any length
LOOK_S = 0.05  # between looks at who is left while climbing


def run(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Run argv, or a shell script; `blob` is the standard input."""
    rungs = parse_ladder(args.get("ladder") or ["TERM 5s", "KILL 5s"])
    began = time.monotonic()
    limit_s = args.get("limit_s")
    process = spawn.start(args, blob)
    assert process.stdout and process.stderr
    with process.stdout, process.stderr:
        streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        sparse = bool(args.get("sparse"))
        if sparse:
            ctx.process = (process.pid, procs.start_ticks(process.pid) or 0)
            ctx.emit({"pid": ctx.process[0], "start": ctx.process[1]})
        output = Output(ctx, streams, int(args.get("keep", 256 * 1024)), bool(args.get("live")), sparse)
        following = Following(ctx, process.pid, output, rungs, None if limit_s is None else began + limit_s)
        following.follow()
    code = process.wait() if following.exited else None
    stdout, stdout_dropped = output.result("stdout")
    stderr, stderr_dropped = output.result("stderr")
    data = {
        "exit": code if code is not None and code >= 0 else None,
        "signal": signal_name(-code) if code is not None and code < 0 else None,
        "seconds": time.monotonic() - began,
        "stdout_len": len(stdout),
        "stdout_dropped": stdout_dropped,
        "stderr_dropped": stderr_dropped,
        "timed_out": following.timed_out,
        "stdout_held": following.held,
        "left_running": left_running(process.pid),
        "pid": process.pid,
    }
    return data, stdout + stderr


OPS = {"run": run}


def left_running(leader: int) -> List[int]:
    """pids of the session that still live. One system call when its first group is empty, which it nearly always is."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        pass
    return sorted(session_members(leader))


class Following:
    """From a started command to its end. `follow` returns when there is nothing more to wait for."""

    def __init__(self, ctx: Any, pid: int, output: Output, rungs: List[Rung], limit: Optional[float]) -> None:
        self._ctx, self._pid, self._output, self._rungs, self._limit = ctx, pid, output, list(rungs), limit
        self._climbing = False
        self._next_rung = 0.0
        self._held_at: Optional[float] = None
        self.exited = False
        self.timed_out = False
        self.held = False
        self._wake = WakePipe()
        self._exit = ChildExit(pid)

    def follow(self) -> None:
        """Read the output, keep the limit, climb the ladder."""
        self._ctx.wake_by(self._wake.wake)
        while True:
            now = time.monotonic()
            wait_s = self._climb(now) if self._climbing else self._look(now)
            if wait_s is None:
                break
            self._read(wait_s)
        self._ctx.wake_by(lambda: None)
        if self._climbing:
            self._await_exit(0.2)
        self._exit.close()
        self._wake.close()

    def _look(self, now: float) -> Optional[float]:
        """How long to wait for the next thing; None at the end."""
        if self.exited:
            if not self._output.open:
                return None
            self._held_at = self._held_at or now + HELD_S
            self.held = now >= self._held_at
            return None if self.held else self._held_at - now
        over = self._limit is not None and now >= self._limit
        if over or self._ctx.cancelled.is_set():
            self.timed_out = over and not self._ctx.cancelled.is_set()
            self._climbing = True
            self._next_rung = now
            return 0.0
        return LOOK_AGAIN_S if self._limit is None else min(LOOK_AGAIN_S, self._limit - now)

    def _climb(self, now: float) -> Optional[float]:
        """The same while the ladder is climbed: the end is an empty session, or the last rung's end."""
        if self._ctx.hurry.is_set():
            self._next_rung = min(self._next_rung, now + HURRY_S)
        members = session_members(self._pid)
        if not members:
            self._climbing = False
            self._await_exit(1.0)
            return self._look(now)
        if now >= self._next_rung:
            if not self._rungs:
                return None
            rung = self._rungs.pop(0)
            signal_session(members, rung)
            self._next_rung = now + rung.wait_s
        return min(LOOK_S, max(0.0, self._next_rung - now))

    def _read(self, wait_s: float) -> None:
        poller = select.poll()
        for fd in (*self._output.open, self._wake.fileno(), *(() if self.exited else (self._exit.fileno(),))):
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(max(0.0, wait_s) * 1000 + 1):
            if fd == self._wake.fileno():
                self._wake.clear()
            elif fd == self._exit.fileno():
                self.exited = True
            else:
                self._output.read(fd)

    def _await_exit(self, within_s: float) -> None:
        poller = select.poll()
        poller.register(self._exit.fileno(), select.POLLIN)
        self.exited = self.exited or bool(poller.poll(within_s * 1000))
