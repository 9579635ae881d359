"""`steps.<launch>.metrics`: the engine's own numbers as its log gives them last, read when an expression asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runbook.diagnose.metrics import from_log
from runbook.hosts.base import Host, HostError, Mark
from runbook.lang.expressions import Unknown
from runbook.steps.base import Launched

TAIL = 1 << 20
"""Bytes at the end of the log that are searched for the last value."""
MOST = 5000


class LastMetrics(Mapping[str, Any]):
    """Metric name to its last value. One that cannot be had is unknown, with the reason."""

    def __init__(self, host: Host, launched: Launched) -> None:
        self._host = host
        self._launched = launched

    def __getitem__(self, name: str) -> Any:
        sources = self._launched.profile.metrics[name]
        state, pattern = self._launched.state, sources.get("log")
        if not pattern:
            return Unknown(f"the profile knows no log line for `{name}`")
        try:
            now = self._host.marks([state.log])[state.log]
            begin = Mark(now.inode, max(state.log_offset if now.inode == state.log_inode else 0, now.size - TAIL))
            matches = self._host.scan(state.log, str(pattern), begin=begin, most=MOST).matches
        except HostError as problem:
            return Unknown(f"the server's log could not be read: {problem.summary}")
        reading = from_log([match.groups.get("value") for match in matches[-1:]])
        return reading.value if reading else Unknown(str(sources.get("missing") or "no line of the log has it"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._launched.profile.metrics)

    def __len__(self) -> int:
        return len(self._launched.profile.metrics)
