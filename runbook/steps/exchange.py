"""A call that runs beside the looks at a server, so that samples are still taken while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from runbook.hosts.base import CancelToken

T = TypeVar("T")


class Exchange(Generic[T]):
    """One call in a thread of its own, so that samples are still taken while it waits. `close` ends it."""

    def __init__(self, cancel: CancelToken, call: Callable[[CancelToken], T]) -> None:
        self._token = CancelToken()
        self._take_back = cancel.on_set(self._token.set)
        self._done = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name="runbook-exchange", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call(self._token))
        except BaseException as problem:  # handed to whoever asks for the result
            self._error = problem
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, at the latest after `seconds`."""
        return self._done.wait(max(0.0, seconds))

    def result(self) -> T:
        """What the call gave; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value[0]

    def close(self, wait_s: float = 2.0) -> None:
        """Tell the call to end and wait a moment for it; not for one that cannot be told."""
        self._take_back()
        self._token.set()
        if wait_s > 0:
            self._thread.join(timeout=wait_s)
