"""Waking a thread that waits in poll()."""

import os
from typing import Any


class WakePipe:
    """Readable after `wake`, until `clear`. Closed only by its reader, after it has told every waker to stop."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """What to poll for input."""
        return self._read

    def wake(self) -> None:
        """From any thread."""
        try:
            os.write(self._write, b".")
        except BlockingIOError:
            pass  # it is full of wakes

    def clear(self) -> None:
        """Take what woke us; call it when poll says that there is something."""
        os.read(self._read, 4096)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._read)
        os.close(self._write)

    def __enter__(self) -> "WakePipe":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
