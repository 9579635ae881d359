"""Running somebody else's small tool: under a limit in time and bytes, and never waited for when it cannot be ended."""

import os
import select
import subprocess
import time
from typing import Any, Dict, List, NamedTuple, Optional

from . import procs

END_S = 0.5  # how long a killed tool gets to be collected
CANCEL_S = 0.1  # how late a cancel may be seen


class Answer(NamedTuple):
    """How the tool ended. `problem` is set when there is no whole answer: not started, out of time, or cut at the byte limit."""

    code: int
    stdout: bytes
    stderr: bytes
    problem: str = ""


def ask(argv: List[str], limit_s: float, most: int = 1 << 20, ctx: Any = None, env: Optional[Dict[str, str]] = None) -> Answer:
    """Run it to its end, or end it after `limit_s` or `most` bytes of output."""
    name = os.path.basename(argv[0])
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(procs.own_environ(), LC_ALL="C", **(env or {})),
            start_new_session=True,
        )
    except OSError as error:
        return Answer(127, b"", b"", "%s could not be started: %s" % (name, error.strerror))
    try:
        problem = _follow(process, time.monotonic() + limit_s, most, ctx)
    finally:
        stdout, stderr = process.stdout, process.stderr
        for stream in (stdout, stderr):
            if stream is not None:
                stream.close()
    kept, errors, why = problem
    if why:
        return Answer(-9, kept, errors, "%s: %s%s" % (name, why % {"limit": limit_s, "most": most}, _end(process)))
    try:
        return Answer(process.wait(END_S), kept, errors)
    except subprocess.TimeoutExpired:
        return Answer(-9, kept, errors, "%s closed its output and did not end%s" % (name, _end(process)))


def _follow(process: "subprocess.Popen[bytes]", deadline: float, most: int, ctx: Any) -> Any:
    """(stdout, stderr, why it must be ended; empty when both outputs were read to their end)."""
    assert process.stdout and process.stderr
    kept: Dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = kept.values()
    poll = select.poll()
    for fd in kept:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    still_open, why = len(kept), ""
    while still_open and not why:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            why = "no answer in %(limit).0f s"
        elif ctx is not None and ctx.cancelled.is_set():
            why = "cancelled"
        for fd, _ in poll.poll(max(0.0, min(left_s, CANCEL_S)) * 1000) if not why else ():
            data = os.read(fd, 1 << 16)
            kept[fd] += data
            if not data:
                poll.unregister(fd)
                still_open -= 1
            elif len(kept[fd]) > most:
                why = "said more than %(most)d bytes"
    return bytes(out[:most]), bytes(err[:most]), why


def _end(process: "subprocess.Popen[bytes]") -> str:
    """Kill it; one that waits in the kernel cannot be ended and is left to be collected by the next start of anything."""
    process.kill()
    try:
        process.wait(END_S)
        return "; it was ended"
    except subprocess.TimeoutExpired:
        stat = procs.read_stat(process.pid)
        return "; pid %d cannot be ended (state %s)" % (process.pid, stat.state if stat else "?")
