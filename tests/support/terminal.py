"""A command on a terminal of its own, as a window or an SSH connection gives it one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

RUNBOOK = (sys.executable, "-m", "runbook.cli.main")


class Terminal:
    """`runbook ARGV`, or another program, with a controlling terminal. `shown`: what it has shown so far.

    Started as every other process is, and not by a fork of this one: that would copy the locks that other threads hold.
    """

    def __init__(self, folder: Path, *argv: str, env: Mapping[str, str], program: Sequence[str] = RUNBOOK) -> None:
        self._master, slave = pty.openpty()
        words = ["setsid", "--ctty", *program, *argv]
        self.process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, "TERM": "xterm", **env}, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self.shown = ""

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what it shows within this time; false when its other end is closed."""
        poller = select.poll()
        poller.register(self._master, select.POLLIN)
        while poller.poll(seconds * 1000):
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.shown += data.decode("utf-8", "replace")
            seconds = 0.0
        return True

    def type(self, keys: str) -> None:
        """As if typed."""
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Close it: what runs on it gets SIGHUP."""
        os.close(self._master)
