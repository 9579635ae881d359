"""The bounded ring of looks at a launch that a keeper takes while nobody is connected."""

import json
import os
import time
from typing import Any

from .files import private

MOST_LINES = 360  # an hour at one look every 10 s


class Ring:
    """A JSON Lines file of the last looks: t, state, rss, log size, processes. It is cut when it holds twice as many."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines = 0

    def add(self, stat: Any, log: str, processes: int) -> None:
        """One look. A full disk loses the look, never the launch."""
        try:
            size = os.stat(log).st_size
        except OSError:
            size = None
        line = json.dumps({"t": round(time.time(), 3), "state": stat.state, "rss": stat.rss, "log": size, "processes": processes})
        try:
            with open(self.path, "a", encoding="ascii", opener=private) as out:
                out.write(line + "\n")
            self._lines += 1
            if self._lines >= 2 * MOST_LINES:
                self._cut()
        except OSError:
            pass  # the record of its end matters more than a look

    def _cut(self) -> None:
        with open(self.path, encoding="ascii") as source:
            kept = source.readlines()[-MOST_LINES:]
        with open(self.path + ".tmp", "w", encoding="ascii", opener=private) as out:
            out.writelines(kept)
        os.replace(self.path + ".tmp", self.path)
        self._lines = len(kept)
