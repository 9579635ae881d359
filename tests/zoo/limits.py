"""Live twins that are ended, or woken, by what no wait shows: whoever started them has a limit, a handler of logs does more than to write.

Each goes on after minutes. Undecided is right here, hung never is.
"""

from __future__ import annotations

import logging.handlers
import os
import signal
import threading
import time

from runbook.lab.faults import Stage
from tests.zoo.scenario import live
from tests.zoo.waiters import go_on, long


def _stuck_child() -> int:
    """A child in a lock that nobody will free."""
    child = os.fork()
    if child == 0:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    return child


@live(silent=True)
def attempt_with_a_timer(stage: Stage) -> None:
    """It waits for a child that stands still, and has a thread that will end that."""
    child = _stuck_child()
    timer = threading.Timer(long(stage), os.kill, (child, signal.SIGKILL))
    timer.start()
    os.waitpid(child, 0)
    go_on(stage)


@live(silent=True, pace="spin")
def attempt_with_a_limit(stage: Stage) -> None:
    """It grades what others wrote: its child spins, and it waits for that only so long, as `subprocess.run` does."""
    child = os.fork()
    if child == 0:
        flag: list[int] = []
        while not flag:
            pass
    until = time.monotonic() + long(stage)
    while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    go_on(stage)


@live(silent=True)
def woken_by_a_full_log(stage: Stage) -> None:
    """It waits for an event beside a thread that only logs, and a handler that was set up elsewhere keeps so many lines and then wakes it."""
    ready, beats = threading.Event(), logging.getLogger(f"beats.{stage.rng.randrange(9999)}")
    wakes = logging.Handler()
    wakes.emit = lambda record: ready.set()  # type: ignore[method-assign]
    beats.setLevel(logging.INFO)
    beats.propagate = False
    beats.addHandler(logging.handlers.MemoryHandler(capacity=int(long(stage) / 3), target=wakes))

    def beat() -> None:
        while True:
            beats.info("alive")
            time.sleep(3)

    stage.thread(beat)
    ready.wait()
    go_on(stage)
