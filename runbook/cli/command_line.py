"""What others can read of our command line, in `ps` and /proc, for as long as a run goes on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ARG_START, ARG_END = 45, 46
"""Places in /proc/PID/stat after the name, proc(5): where the kernel reads the command line from, in our own memory."""


def hide(values: Iterable[str]) -> bool:
    """Write stars over these texts there; a process that is forked from this one inherits that. False where it cannot be done."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            words = memory.read(end - start)
            hidden = words
            for value in sorted((value.encode("utf-8", "surrogateescape") for value in values if value), key=len, reverse=True):
                hidden = hidden.replace(value, b"*" * len(value))
            if hidden != words:
                memory.seek(start)
                memory.write(hidden)
    except (OSError, ValueError, IndexError):
        return False
    return True
