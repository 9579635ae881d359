"""Reads that can block for ever: memory maps of a process stuck in the kernel, files of a server that no longer answers.

Each runs on a thread beside and is waited for; one that does not come back is remembered, so that the same read is not begun again before
it has: a stuck look costs one thread, however often it is asked for.
"""

import queue
import threading
import time
from typing import Any, Callable, Dict, Hashable, List

LIMIT_S = 0.5


class Stuck(Exception):
    """The read has not come back; `seconds` since it began."""

    def __init__(self, seconds: float) -> None:
        super().__init__("no answer for %.1f s" % seconds)
        self.seconds = seconds


class _Errand:
    def __init__(self, action: Callable[[], Any]) -> None:
        self.action = action
        self.began = time.monotonic()
        self.over = threading.Event()
        self.value: Any = None
        self.problem: Any = None

    def run(self) -> None:
        try:
            self.value = self.action()
        except Exception as problem:  # handed to whoever waits
            self.problem = problem
        self.over.set()


class _Runner:
    """A thread that runs one errand after another; given up for good when one does not come back in time."""

    def __init__(self) -> None:
        self.errands: "queue.SimpleQueue[_Errand]" = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            errand = self.errands.get()
            errand.run()
            _idle.append(self)


_idle: List[_Runner] = []
_stuck: Dict[Hashable, _Errand] = {}


def read(key: Hashable, action: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """`action()`, or what it raises. Raises Stuck when it takes longer, or when one that began so long ago under this key still runs."""
    before = _stuck.get(key)
    if before is not None and not before.over.wait(max(0.0, before.began + limit_s - time.monotonic())):
        raise Stuck(time.monotonic() - before.began)
    errand = _stuck[key] = _Errand(action)
    _runner().errands.put(errand)
    if not errand.over.wait(limit_s):
        raise Stuck(time.monotonic() - errand.began)
    _stuck.pop(key, None)
    if errand.problem is not None:
        raise errand.problem
    return errand.value


def _runner() -> _Runner:
    try:
        return _idle.pop()
    except IndexError:
        return _Runner()
