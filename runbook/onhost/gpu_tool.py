"""Running the driver's tool: under a limit, and never two copies at once.

A copy that does not answer can be stuck in the driver, where no signal reaches it; a second one would join it. The lock is a name
in the abstract socket namespace whose socket the tool itself inherits: it is held for as long as that copy lives, whoever started
it, and nothing stays on disk.
"""

import errno
import hashlib
import os
import shutil
import socket
import subprocess
import time
from typing import Any, List, NamedTuple, Optional

from . import procs
from .listeners import find_owners

POLL_S = 0.02
CANCEL_S = 0.2  # how late a cancel may be seen


class Answer(NamedTuple):
    """How the tool ended. `blind` is set when there is no answer to read."""

    code: int
    stdout: str
    stderr: str
    blind: str = ""


class ToolLock:
    """This user's one permission on this host to run the tool at that path."""

    def __init__(self, tool: str) -> None:
        self.name = "runbook-gpu-tool-%d-%s" % (os.getuid(), hashlib.sha256(tool.encode("utf-8", "surrogateescape")).hexdigest()[:16])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def acquire(self, deadline: float, ctx: Any) -> str:
        """Empty when it was had; else who holds it, once the deadline is over."""
        while True:
            try:
                self._socket.bind("\0" + self.name)
                return ""
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if time.monotonic() >= deadline or ctx.cancelled.is_set():
                return self._holder()
            time.sleep(POLL_S)

    def _holder(self) -> str:
        table = procs.process_table()
        owners = find_owners(_inodes_of("@" + self.name), table)
        pids = {pid for found in owners.values() for pid in found}
        if not pids:
            return "another copy of nvidia-smi runs, by a process that cannot be seen"
        youngest = max((table[pid] for pid in pids), key=lambda stat: stat.start)
        age_s = procs.age_s(youngest)
        return "another copy of nvidia-smi (pid %d, state %s) has not answered for %.0f s" % (youngest.pid, youngest.state, age_s)

    def run(self, argv: List[str], deadline: float, ctx: Any) -> Answer:
        """One question, while the lock is held."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(procs.own_environ(), LC_ALL="C"),
                pass_fds=(self._socket.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            return Answer(127, "", "", "nvidia-smi could not be started: %s" % error.strerror)
        while True:
            try:
                out, err = process.communicate(timeout=max(0.0, min(CANCEL_S, deadline - time.monotonic())))
                return Answer(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline or ctx.cancelled.is_set():
                    return _give_up(process)

    def close(self) -> None:
        """Give up our share; a copy that still lives keeps its own."""
        self._socket.close()


def _give_up(process: "subprocess.Popen[bytes]") -> Answer:
    """End the tool; one that waits in the driver cannot be ended and is collected by the next start of anything."""
    stat = procs.read_stat(process.pid)
    process.kill()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        state = stat.state if stat else "?"
        return Answer(-9, "", "", "nvidia-smi: no answer in time; pid %d cannot be ended (state %s)" % (process.pid, state))
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return Answer(-9, "", "", "nvidia-smi: no answer in time; it was ended")


def _inodes_of(path: str) -> set:
    text = (procs.read_bytes("/proc/net/unix", 16 << 20) or b"").decode("utf-8", "replace")
    rows = (line.split() for line in text.splitlines()[1:])
    return {int(row[6]) for row in rows if len(row) == 8 and row[7] == path}


def find_tool(path: Optional[str]) -> Optional[str]:
    """nvidia-smi on this PATH."""
    return shutil.which("nvidia-smi", path=path or os.defpath)
