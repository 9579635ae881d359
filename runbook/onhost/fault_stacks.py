"""Stacks that a process prints itself, by the fault handler that `dumps: full` armed in it. Nothing else is ever signalled."""

import os
import re
import time
from typing import Any, Dict, List

from . import dumps, procs

WAIT_S = 1.5
QUIET_S = 0.05
POLL_S = 0.01
MOST_BYTES = 1 << 20
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\)")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def dump(pid: int, start: int, limit_s: float) -> Any:
    """The threads as plain data, or a text that says why there are none."""
    path = dumps.armed(pid, procs.environ_value, procs.caught_signals(pid))
    if not path:
        return "its fault handler is not known to be armed (launch with `dumps: full`)"
    before = os.path.getsize(path)
    stat = procs.same(pid, start)
    if stat is None or stat.state in "TtDZX":
        return "its fault handler cannot run in state %s" % (stat.state if stat else "X")
    try:
        os.kill(pid, dumps.SIGNAL)
    except OSError as error:
        return "its fault handler could not be asked: %s" % error.strerror
    text = gained(path, before, time.monotonic() + min(WAIT_S, limit_s))
    found = threads(text, pid)
    return found if found else "its fault handler printed nothing in %.1f s" % min(WAIT_S, limit_s)


def gained(path: str, before: int, deadline: float) -> str:
    """What the file gained, once it grows no more."""
    size, since = before, time.monotonic()
    while time.monotonic() < deadline:
        now = os.path.getsize(path)
        if now != size:
            size, since = now, time.monotonic()
        elif now > before and time.monotonic() - since > QUIET_S:
            break
        time.sleep(POLL_S)
    with open(path, "rb") as file:
        file.seek(before)
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def threads(text: str, pid: int) -> List[Dict[str, Any]]:
    """Main thread first. The handler prints the newest thread first and the main one last, and knows no kernel ids but the process's."""
    found: List[Dict[str, Any]] = []
    for line in text.splitlines():
        thread, frame = _THREAD.match(line), _FRAME.match(line)
        if thread:
            found.append({"tid": int(thread.group(1), 16), "thread": thread.group(2) or "", "main": False, "frames": []})
        elif frame and found:
            place = "/".join(frame.group(1).split("/")[-2:])
            found[-1]["frames"].append("%s (%s:%s)" % (frame.group(3), place, frame.group(2).replace("???", "0")))
    if found:
        found[-1].update(main=True, tid=pid)
    return found[::-1]
