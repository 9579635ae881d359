"""Waking a thread that waits in poll(): from another thread, or by the end of a child."""

import os
import threading
from typing import Any, Optional


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


class ChildExit:
    """Readable once a child has ended, which it does not reap. A pidfd where there is one, else a thread that waits for it."""

    def __init__(self, pid: int) -> None:
        fd = open_pidfd(pid)
        if fd is None:
            fd, end = os.pipe()
            threading.Thread(target=_close_at_exit, args=(pid, end), daemon=True).start()
        self._fd = fd

    def fileno(self) -> int:
        """What to poll: any event means the end."""
        return self._fd

    def close(self) -> None:
        """Give the descriptor back. The thread of a child that never ends stays with it."""
        os.close(self._fd)


def open_pidfd(pid: int) -> Optional[int]:
    """None before Python 3.9, before Linux 5.3, or where it is not allowed."""
    try:
        return os.pidfd_open(pid)  # type: ignore[attr-defined, no-any-return, unused-ignore]
    except (AttributeError, OSError):
        return None


def _close_at_exit(pid: int, end: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(end)
