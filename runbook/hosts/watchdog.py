"""Notices a dead link: a thread that asks the peer for a sign of life, and ends the connection when none comes.

A TCP connection through a black hole stays open for minutes, and every waiting call with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from runbook.model.clock import Clock


class Watchdog:
    """Calls `ping` every `interval_s`; calls `lost` once when nothing was heard for `interval_s * count`.

    `ping` blocks until the peer has answered (or the connection is closed) and says which. Anything else that arrives counts
    as a sign of life too: the owner calls `heard`.
    """

    def __init__(self, ping: Callable[[], bool], lost: Callable[[str], None], *, interval_s: float, count: int, clock: Clock) -> None:
        self._ping, self._lost, self._clock = ping, lost, clock
        self._limit_s = interval_s * max(1, count)
        self._interval_s = min(interval_s, self._limit_s / 2)  # with a count of one, half of the time is for the answer
        self._heard_at = clock.monotonic()
        self._asking = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ssh-watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more; returns at once."""
        self._stopped.set()

    def heard(self) -> None:
        """Something arrived."""
        self._heard_at = self._clock.monotonic()

    def _watch(self) -> None:
        while True:
            left_s = self._heard_at + self._limit_s - self._clock.monotonic()
            if left_s <= 0:
                self._lost(f"no answer to keepalives for {self._limit_s:g} s")
                return
            nap_s = min(self._interval_s, max(left_s, 0.01))
            before = self._clock.monotonic()
            if self._clock.wait(self._stopped, nap_s):
                return
            if self._clock.monotonic() - before > nap_s + self._limit_s / 2:
                self.heard()  # we were stopped ourselves: the silence of that time proves nothing
            if not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, name="ssh-keepalive", daemon=True).start()

    def _ask(self) -> None:
        if self._ping():
            self.heard()
        self._asking = False
