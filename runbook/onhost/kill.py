"""Ending exactly these processes, and proving that they ended."""

import os
import select
import signal
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import procs
from .errors import OpError
from .ladder import parse_ladder
from .protect import refuse_processes
from .wake import open_pidfd

POLL_S = 0.02  # where the kernel has no pidfd


class Target:
    """A process by pid and start time. A pidfd, where there is one, makes a reused pid impossible instead of unlikely."""

    def __init__(self, pid: int, start: int) -> None:
        self.pid, self.start = pid, start
        self.title = procs.title(pid)
        self.refused = ""
        self.zombie_of: Optional[int] = None
        self.pidfd = open_pidfd(pid)

    def is_gone(self) -> bool:
        """Whether it ended. A zombie holds no memory, GPU or port: it counts as gone, and its parent is noted."""
        stat = procs.same(self.pid, self.start)
        if stat is not None and stat.state in "ZX":
            self.zombie_of = stat.ppid
        return stat is None or stat.state in "ZX"

    def signal(self, number: int) -> bool:
        """Send it if the pid still is this process; False when it could not be sent."""
        stat = procs.same(self.pid, self.start)
        if stat is None:
            return False
        try:
            self._send(number)
            if stat.state in "Tt" and number not in (signal.SIGKILL, signal.SIGSTOP):
                self._send(signal.SIGCONT)  # a stopped process acts on nothing else
        except ProcessLookupError:
            return False
        except PermissionError:
            self.refused = "not permitted"
            return False
        return True

    def _send(self, number: int) -> None:
        if self.pidfd is not None:
            signal.pidfd_send_signal(self.pidfd, number)  # type: ignore[attr-defined]
        else:
            os.kill(self.pid, number)

    def left(self) -> Dict[str, Any]:
        """What is known about a target that did not end."""
        stat = procs.same(self.pid, self.start)
        state = stat.state if stat else ""
        why = self.refused or ("D state: it waits in the kernel and cannot be ended" if state == "D" else "alive")
        return {"pid": self.pid, "start": self.start, "title": self.title, "state": state, "why": why}

    def close(self) -> None:
        """Give the descriptor back."""
        if self.pidfd is not None:
            os.close(self.pidfd)


def kill(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Climb the ladder on `targets` [[pid, start], …]; a rung ends early when nobody is left."""
    rungs = parse_ladder(args["ladder"])
    targets = [Target(int(pid), int(start)) for pid, start in args["targets"]]
    try:
        _refuse_our_own(targets, ctx.scope)
        refuse_processes(targets, ctx.protect)
        signals: List[Dict[str, Any]] = []
        began = time.monotonic()
        remaining = [target for target in targets if not target.is_gone()]
        for rung in rungs:
            for target in remaining:
                if target.signal(rung.number):
                    after_s = round(time.monotonic() - began, 3)
                    signals.append({"pid": target.pid, "start": target.start, "signal": rung.name, "after_s": after_s})
            remaining = _await_end(remaining, time.monotonic() + rung.wait_s, ctx)
            if not remaining or ctx.cancelled.is_set():
                break
        left = {target.pid for target in remaining}
        gone = [target for target in targets if target.pid not in left]
        return {
            "gone": [{"pid": target.pid, "start": target.start} for target in gone],
            "left": [target.left() for target in remaining],
            "signals": signals,
            "notes": ["pid %d is a zombie: its parent, pid %d, has not collected it" % (t.pid, t.zombie_of) for t in gone if t.zombie_of],
        }, b""
    finally:
        for target in targets:
            target.close()


def _refuse_our_own(targets: List[Target], scope: procs.Scope) -> None:
    """The last line of defence: whatever the controller thinks, init and our own ancestry are never signalled."""
    ours: Set[int] = {1, *procs.ancestors(os.getpid(), procs.process_table())}
    for target in targets:
        if target.is_gone():
            continue
        if target.pid in ours:
            raise OpError("protected", "pid %d is init or runs this very connection" % target.pid, "nothing was signalled")
        if not procs.is_visible(target.pid, scope):
            raise OpError("protected", "pid %d is outside of what this host shows" % target.pid, "nothing was signalled")


def _await_end(targets: List[Target], deadline: float, ctx: Any) -> List[Target]:
    """Those that still live at the deadline. Refused ones are not waited for."""
    while True:
        remaining = [target for target in targets if not target.is_gone()]
        wait_s = deadline - time.monotonic()
        waited_for = [target for target in remaining if not target.refused]
        if not waited_for or wait_s <= 0 or ctx.cancelled.is_set():
            return remaining
        _wait_for_one(waited_for, wait_s)


def _wait_for_one(targets: List[Target], wait_s: float) -> None:
    """Until one of them ends, at most half a second at a time so that a cancel is seen."""
    descriptors = [target.pidfd for target in targets if target.pidfd is not None]
    if len(descriptors) < len(targets):
        time.sleep(min(wait_s, POLL_S))
        return
    poller = select.poll()
    for fd in descriptors:
        poller.register(fd, select.POLLIN)
    poller.poll(min(wait_s, 0.5) * 1000 + 1)
