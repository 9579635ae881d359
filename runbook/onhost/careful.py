"""Reads that can block for ever: memory maps of a process stuck in the kernel, files of a server that no longer answers.

Each runs on a thread of its own and is waited for; one that does not come back is remembered, so that the same read is not begun again
before it has: a stuck look costs one thread, however often it is asked for.
"""

import threading
import time
from typing import Any, Callable, Dict, Hashable, List, Tuple

LIMIT_S = 0.5
_stuck: Dict[Hashable, Tuple[threading.Thread, float]] = {}
_lock = threading.Lock()


class Stuck(Exception):
    """The read has not come back; `seconds` since it began."""

    def __init__(self, seconds: float) -> None:
        super().__init__("no answer for %.1f s" % seconds)
        self.seconds = seconds


def read(key: Hashable, action: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """`action()`, or what it raises. Raises Stuck when it takes longer, or when the one before under this key still runs."""
    began = time.monotonic()
    with _lock:
        before = _stuck.get(key)
        if before is not None and before[0].is_alive():
            raise Stuck(began - before[1])
        _stuck.pop(key, None)
        box: List[Any] = []
        thread = threading.Thread(target=_run, args=(action, box), daemon=True)
        _stuck[key] = (thread, began)
        thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise Stuck(time.monotonic() - began)
    with _lock:
        _stuck.pop(key, None)
    value, problem = box[0]
    if problem is not None:
        raise problem
    return value


def _run(action: Callable[[], Any], box: List[Any]) -> None:
    try:
        box.append((action(), None))
    except Exception as problem:  # handed to whoever waits
        box.append((None, problem))
