"""Whether a wait has a limit of time that its system call does not show: of a socket's option, of a process's own alarm.

A receive without a word of time may still end by SO_RCVTIMEO. Whoever may trace a process may have its socket (pidfd_getfd, Linux 5.6) and
ask; where that is refused the wait may have a limit. An alarm (setitimer) is shown nowhere; only that no process of the host has one set
is, in /proc/timer_list for root. Timers of timer_create stand in /proc/PID/timers; a limit of
CPU time (RLIMIT_CPU) is one more.
"""

import ctypes
import os
import socket
import struct
from typing import Optional, Tuple

from . import procs

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438  # the same on x86_64 and aarch64
_ALARM = 14
_TIME = struct.Struct("ll")  # struct timeval


def of_receive(pid: int, fd: int) -> Tuple[bool, str]:
    """(whether a receive at this socket comes back by itself, or may; and why that is not known)."""
    try:
        return any(_receive_limit(pid, fd)), ""
    except OSError as problem:
        return True, "whether its receive has a limit of time cannot be asked (%s)" % problem.strerror


def _receive_limit(pid: int, fd: int) -> Tuple[int, int]:
    """Seconds and microseconds; 0, 0 is no limit. Raises OSError."""
    handle = _syscall(_PIDFD_OPEN, pid, 0)
    try:
        twin = socket.socket(fileno=_syscall(_PIDFD_GETFD, handle, fd, 0))
    finally:
        os.close(handle)
    with twin:
        seconds, micros = _TIME.unpack(twin.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIME.size))
        return int(seconds), int(micros)


def _syscall(number: int, *arguments: int) -> int:
    answer = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def alarm_of(pid: int, quiet: bool) -> Optional[bool]:
    """Whether a timer of its own may send it a signal; None where that cannot be seen. quiet: the host has no alarm set at all."""
    try:
        with open("/proc/%d/timers" % pid, "rb") as file:
            if file.read(64) or _cpu_limited(pid):
                return True
        blocked = [_masks(path) for path in _tasks(pid)]
    except OSError:
        return None
    if quiet or (blocked and all(mask >> (_ALARM - 1) & 1 for mask in blocked)):
        return False
    return None


def _cpu_limited(pid: int) -> bool:
    """Whether it may use only so much CPU time: then the kernel ends it."""
    rows = (procs.read_bytes("/proc/%d/limits" % pid, 8192) or b"").splitlines()
    return any(row.startswith(b"Max cpu time") and row.split()[3] != b"unlimited" for row in rows)


def _tasks(pid: int) -> Tuple[str, ...]:
    folder = "/proc/%d/task" % pid
    return tuple("%s/%s/status" % (folder, name) for name in os.listdir(folder))


def _masks(path: str) -> int:
    """Signals that a thread blocks or its process ignores."""
    raw = procs.read_bytes(path, 8192) or b""
    fields = dict(line.split(b":", 1) for line in raw.splitlines() if line.startswith((b"SigBlk:", b"SigIgn:")))
    return int(fields.get(b"SigBlk", b"0"), 16) | int(fields.get(b"SigIgn", b"0"), 16)


def no_alarms() -> bool:
    """Whether the kernel lists its timers to us, and no process of the host has set an alarm."""
    raw = procs.read_bytes("/proc/timer_list", 8 << 20) or b""
    return raw.startswith(b"Timer List Version") and b"cpu: 0" in raw and b"it_real_fn" not in raw
