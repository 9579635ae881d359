"""Jump hosts: one connection each, shared by all targets behind it, closed with the last of them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from runbook.hosts.base import Cancelled, CancelToken

_POLL_S = 0.1
MOST_HANDSHAKES = 8  # sshd drops connections at random from its tenth unauthenticated one on (MaxStartups 10:30:100)


class _Open(Protocol):
    @property
    def is_connected(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=_Open)


class Shared(Generic[C]):
    """Open things by key, each made once and counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)
        self._held: dict[Hashable, tuple[C, int]] = {}

    def take(self, key: Hashable, make: Callable[[], C], cancel: CancelToken | None) -> tuple[C, Callable[[], None]]:
        """The live one of this key, else what `make` makes, and the function that gives it back (once)."""
        with self._lock:
            opening = self._opening[key]
        with acquired(opening, cancel):
            with self._lock:
                there, users = self._held.get(key, (None, 0))
            if there is None or not there.is_connected:
                there, users = make(), 0
            with self._lock:
                self._held[key] = (there, users + 1)
        taken, held = there, [key]

        def give_back() -> None:
            if held:
                self._give_back(held.pop(), taken)

        return taken, give_back

    def _give_back(self, key: Hashable, one: C) -> None:
        with self._lock:
            there, users = self._held.get(key, (None, 0))
            if there is not one:
                return  # it had died and was replaced: nobody else holds this one
            if users > 1:
                self._held[key] = (one, users - 1)
                return
            del self._held[key]
        one.close()


@contextmanager
def acquired(lock: threading.Lock | threading.Semaphore, cancel: CancelToken | None) -> Iterator[None]:
    """Hold a lock or a semaphore's slot; Cancelled ends the wait for it."""
    while not lock.acquire(timeout=_POLL_S):
        if cancel is not None and cancel.is_set():
            raise Cancelled("interrupted while waiting for another connection")
    try:
        yield
    finally:
        lock.release()
