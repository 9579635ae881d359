"""Resident bytes of a process's mapped weight files: what a loader that maps its shards has read, to the page."""

import re
import time
from typing import Any, Dict, Hashable, Optional

from .rights import read_file
from .sources import absent, blind, seen

MOST_MAPS = 16 << 20
MOST_SMAPS = 64 << 20
REST = 50  # so many times as long as smaps took it is left alone: it walks the page tables of all that is resident
_WEIGHTS = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ .*\.(?:safetensors|gguf|bin|pt)(?: \(deleted\))?$", re.MULTILINE)
_RSS = re.compile(rb"^Rss:\s+(\d+) kB", re.MULTILINE)


class Weights:
    """Of one process, look after look."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._state: Optional[Hashable] = None
        self._found: Dict[str, Any] = {}
        self._free_at = float("-inf")

    def read(self, state: Hashable) -> Dict[str, Any]:
        """Seen bytes, Absent without such a mapping. Raises OSError; can block while somebody holds the process's memory lock.

        `state`: what cannot stay the same when a page of a file is mapped or unmapped; while it does, the last reading stands.
        """
        if state == self._state:
            return self._found
        if time.monotonic() < self._free_at:
            return blind("not sampled")
        if not _WEIGHTS.search(read_file("/proc/%d/maps" % self._pid, MOST_MAPS)):
            found = absent()
        else:
            began = time.monotonic()
            found = seen(weight_rss(read_file("/proc/%d/smaps" % self._pid, MOST_SMAPS)))
            self._free_at = time.monotonic() + REST * (time.monotonic() - began)
        self._state, self._found = state, found
        return found


def weight_rss(smaps: bytes) -> int:
    """Sum of Rss, bytes, over the mappings of weight files."""
    total = 0
    for mapping in _WEIGHTS.finditer(smaps):
        rss = _RSS.search(smaps, mapping.end())
        total += int(rss.group(1)) * 1024 if rss else 0
    return total
