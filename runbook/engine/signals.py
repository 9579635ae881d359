"""What may interrupt a run: Ctrl-C, SIGTERM, a closed terminal (SIGHUP), and another process that asks for its cancel.

The first stops the step and cleans up. A second Ctrl-C or SIGTERM leaves now and says what is left; SIGHUP never does, since a terminal
that closes sends it more than once, and a session that ends sends SIGTERM with it.

The handler itself does nothing: Python writes the signal's number to a wake-up pipe and a thread of its own acts on it, so no
lock can be held by the code that was interrupted.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_EVERY_S = 0.5
"""Between two looks for a request."""


class Interrupts:
    """While active, `first(name)` is called on the first signal or request (`cancel`), `again(name)` on a second Ctrl-C or SIGTERM.

    `asked` answers whether a request has come. SIGHUP is left alone where it is ignored already: under nohup, in a worker.
    """

    def __init__(self, first: Callable[[str], None], again: Callable[[str], None], asked: Callable[[], bool] = lambda: False) -> None:
        self._first = first
        self._again = again
        self._asked = asked
        self._before: dict[int, signal._HANDLER] = {}
        self._begun = False
        self._hung_up = False
        self._presses = 0

    def __enter__(self) -> Interrupts:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL:
                self._before[number] = signal.signal(number, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="runbook-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._wakeup)
        if self._hung_up:
            del self._before[signal.SIGHUP]  # the transcripts are still to be written, and the next one may be on its way
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _listen(self) -> None:
        waiting = select.poll()
        waiting.register(self._read, select.POLLIN)
        while True:
            if not waiting.poll(None if self._begun else LOOK_EVERY_S * 1000):
                if self._asked():
                    self._begin("cancel")
                continue
            numbers = os.read(self._read, 64)
            if not numbers:
                return
            for number in numbers:
                if number in self._before:
                    self._act(signal.Signals(number))

    def _act(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            self._hung_up = True
        else:
            self._presses += 1
        if not self._begun:
            self._begin(number.name)
        elif number != signal.SIGHUP and self._presses > 1:
            self._again(number.name)

    def _begin(self, name: str) -> None:
        self._begun = True
        self._first(name)
