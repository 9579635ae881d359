"""A call that runs beside the looks at a server, so that samples are still taken while it waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from runbook.hosts.base import CancelToken

T = TypeVar("T")


class _Worker:
    """A thread that is kept for the next call: starting one costs more than handing over most calls."""

    idle: list[_Worker] = []

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="runbook-exchange", daemon=True).start()

    @classmethod
    def submit(cls, task: Callable[[_Worker], None]) -> None:
        """Run `task` on an idle thread, or on a new one."""
        try:
            worker = cls.idle.pop()
        except IndexError:
            worker = cls()
        worker.tasks.put(lambda: task(worker))

    def _work(self) -> None:
        while True:
            self.tasks.get()()


class Exchange(Generic[T]):
    """One call in a thread of its own, so that samples are still taken while it waits. `close` ends it."""

    def __init__(self, cancel: CancelToken, call: Callable[[CancelToken], T]) -> None:
        self._token = CancelToken()
        self._take_back = cancel.on_set(self._token.set)
        self._done = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._call = call
        _Worker.submit(self._run)

    def _run(self, worker: _Worker) -> None:
        try:
            self._value.append(self._call(self._token))
        except BaseException as problem:  # handed to whoever asks for the result
            self._error = problem
        finally:
            _Worker.idle.append(worker)
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
            self._done.wait(wait_s)
