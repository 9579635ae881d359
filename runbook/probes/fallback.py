"""What stands in where the code of payload.py could not start. Copied into a patched file: it must run alone, on Python ≥ 3.8.

It happens to a module that the standard library needs itself to write a record, such as `reprlib`: it is half imported then.
"""

# mypy: ignore-errors
from __future__ import annotations


def fallback(error, side, head, count):
    """Answers for everything that the file calls, and leaves one record that says why it is silent.

    head: the beginning of each record of this patch. count: number of probes.
    """
    import os
    import time

    def never(_):
        return False

    never.out = [lambda value: value] * count
    never.built = [never] * count
    never.left = never.failed = never.loaded = never
    try:
        with open("/proc/self/stat", "rb") as stat:
            start = int(stat.read().rpartition(b")")[2].split()[19])
        how = "".join(c for c in "%s: %s" % (type(error).__name__, error) if c.isalnum() or c in " .,:_'()")[:200]  # noqa: UP031
        line = '%s "kind": "unarmed", "pid": %d, "start": %d, "time": %f, "how": "%s"}\n'
        fd = os.open(side, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        try:
            os.write(fd, (line % (head, os.getpid(), start, time.time(), how)).encode("ascii", "replace"))
        finally:
            os.close(fd)
    except Exception:  # without a side file there is nobody to tell
        return never
    return never
