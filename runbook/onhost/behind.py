"""A helper's way out when its controller is gone: what it was given by name goes on, and is written down for the next helper.

serving ── stdin ends without goodbye, or SIGUSR1 ──> behind ── the last named command has ended ──> gone
"""

import contextlib
import os
import sys
import threading
from collections import deque
from typing import Any, Deque, Dict, List, Tuple

from . import procs
from .errors import OpError
from .files import private

KEPT = 4  # answers that were sent and may not have arrived: a link takes seconds to be known as lost

Name = Tuple[str, str]
"""(run, name of the command)."""


class Behind:
    """What this helper would leave on record. Thread safe."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._lock = threading.Lock()
        self._sent: Deque[Tuple[Name, Dict[str, Any], bytes]] = deque(maxlen=KEPT)
        self.left = False
        """Whether our controller is gone: from then on nothing new is begun."""

    def heard(self) -> None:
        """The controller has sent something: it has what was sent before."""
        if self._sent and not self.left:
            self._sent.clear()

    def ended(self, name: Name, answer: Dict[str, Any], blob: bytes) -> None:
        """A named command has ended: to be kept until the answer has arrived, or written down."""
        with self._lock:
            if self.left:
                self._write(name, answer, blob)
            else:
                self._sent.append((name, answer, blob))

    def leave(self, running: List[Any]) -> bool:
        """Write down, once, what runs and what may not have arrived; False when that cannot be done: then nothing may go on."""
        with self._lock:
            if self.left:
                return True
            self.left = True
            helper = (os.getpid(), procs.start_ticks(os.getpid()) or 0)
            from .held import MOST_LIVE, Held  # here and below: most helpers leave nothing behind

            try:
                for context in running:
                    held = Held(self._state_dir, context.hold[0])
                    held.begin(context.hold[1], helper, context.process)
                    context.divert(_Live(held.file(context.hold[1], ".live"), MOST_LIVE))
                for name, answer, blob in self._sent:
                    Held(self._state_dir, name[0]).end(name[1], answer, blob)
                self._sent.clear()
                self.tell(helper)
            except (OSError, OpError) as error:
                sys.stderr.write("cannot stay behind: %s\n" % error)
                return False
        return True

    def tell(self, helper: Tuple[int, int]) -> None:
        """Say that all is on record to the helper that asked, if one did. `helper`: our pid and start ticks."""
        from .held import asked

        for ask in asked(self._state_dir, helper):
            with contextlib.suppress(FileNotFoundError):
                os.rename(ask, ask[:-4] + ".told")

    def _write(self, name: Name, answer: Dict[str, Any], blob: bytes) -> None:
        from .held import Held

        try:
            Held(self._state_dir, name[0]).end(name[1], answer, blob)
        except (OSError, OpError) as error:  # a full disk: nobody will know how it ended
            sys.stderr.write("the end of `%s` is lost: %s\n" % (name[1], error))


class _Live:
    """A bounded file in place of the link."""

    def __init__(self, path: str, room: int) -> None:
        self._path, self._room = path, room

    def __call__(self, blob: bytes) -> None:
        piece, self._room = blob[: self._room], self._room - min(len(blob), self._room)
        if piece:
            with contextlib.suppress(OSError), open(self._path, "ab", opener=private) as out:
                out.write(piece)
