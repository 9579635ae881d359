"""Ctrl-C and SIGTERM. The first stops the step and cleans up; the second leaves now and says what is left.

The handler itself does nothing: Python writes the signal's number to a wake-up pipe and a thread of its own acts on it, so no
lock can be held by the code that was interrupted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While active, `first(name)` is called on the first signal and `again(name)` on every further one."""

    def __init__(self, first: Callable[[str], None], again: Callable[[str], None]) -> None:
        self._first = first
        self._again = again
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interrupts:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in SIGNALS:
            self._before[number] = signal.signal(number, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="runbook-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _listen(self) -> None:
        act = self._first
        while numbers := os.read(self._read, 64):
            for number in numbers:
                if number in SIGNALS:
                    act(signal.Signals(number).name)
                    act = self._again
