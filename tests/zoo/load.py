"""An overloaded host: four CPU hogs a core, and one that takes and gives back memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

CPU = "import hashlib, os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    hashlib.sha256(bytes(1 << 22)).digest()\n"
MEMORY = """import mmap, os, time
parent = os.getppid()
while os.getppid() == parent:
    hog = mmap.mmap(-1, SIZE)
    for at in range(0, SIZE, 4096):
        hog[at] = 1
    time.sleep(0.5)
    hog.close()
"""


@contextlib.contextmanager
def hogs() -> Iterator[None]:
    """They run until the block ends, or the runner does."""
    size = min(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4, 4 << 30)
    programs = [CPU] * (4 * (os.cpu_count() or 1)) + [MEMORY.replace("SIZE", str(size))]
    started = [subprocess.Popen([sys.executable, "-S", "-c", program], start_new_session=True) for program in programs]
    try:
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
