"""What the keeper's tests share: operations called in this process, a real keeper beside it, waiting on conditions."""

import os
import signal
import sys
import time
from types import SimpleNamespace

from runbook.onhost import keeper_link, keeper_ops, procs, sampler, undo
from runbook.onhost.runfolder import RunFolder

OPS = {**keeper_ops.OPS, **undo.OPS, **sampler.OPS}


def until(condition, limit_s=10.0):
    """The first true answer; an AssertionError after the deadline."""
    deadline = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"still not so after {limit_s} s"
        time.sleep(0.01)


class Site:
    """A host's state folder with one run."""

    def __init__(self, state_dir, run="r1"):
        self.ctx = SimpleNamespace(state_dir=str(state_dir), scope=None, protect=[])
        self.run = run
        self.folder = RunFolder(str(state_dir), run)

    def op(self, name, blob=b"", **args):
        return OPS[name](self.ctx, {"run": self.run, **args}, blob)[0]

    def python(self, id, text, **spec):
        """Launch a Python program given as text."""
        return self.op("launch", id=id, argv=[sys.executable, "-c", text], **spec)

    def ended(self, id, limit_s=10.0):
        return until(lambda: (lambda state: state if "ended" in state else None)(self.op("launch_state", id=id)), limit_s)

    def log(self, id):
        with open(self.folder.launch_file(id, ".log")) as source:
            return source.read()

    def keeper(self):
        return keeper_link.living(self.folder)

    def close(self):
        """End everything of this run by pid."""
        keeper = self.keeper()
        if keeper is not None:
            below = procs.descendants(keeper["pid"])
            for pid in [keeper["pid"], *below]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def is_gone(pid, start):
    return not procs.is_alive(pid, start)
