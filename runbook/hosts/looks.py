"""Looks at a server as they come over the channel: each brings only what changed since the one before of its chain."""

from __future__ import annotations

import json
import threading
import zlib
from typing import Any

from runbook.onhost import changes

MOST_CHAINS = 16
MOST_BYTES = 256 << 20


class OutOfStep(Exception):
    """The answer builds on a look that is not the last one here."""


class Looks:
    """The last look of each chain. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, dict[str, Any]]] = {}

    def has(self, chain: str) -> int:
        """The number of the last look of a chain; 0 without one: then the whole is sent."""
        with self._lock:
            return self._last.get(chain, (0, {}))[0]

    def take(self, chain: str, answer: dict[str, Any], packed: bytes) -> dict[str, Any]:
        """The whole look of an answer. Raises OutOfStep; ValueError for one that is not what a helper sends."""
        if "number" not in answer:
            return answer
        content = _unpacked(packed)
        with self._lock:
            number, before = self._last.pop(chain, (0, {}))
            if "since" not in answer:
                found = content
            elif answer["since"] == number:
                found = changes.applied(before, content)
            else:
                raise OutOfStep(f"look {answer['number']} builds on look {answer['since']}, and the last one here is {number}")
            self._last[chain] = (answer["number"], found)
            while len(self._last) > MOST_CHAINS:
                del self._last[next(iter(self._last))]
        return dict(found)


def _unpacked(packed: bytes) -> Any:
    """Raises ValueError, also for more than any look has."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, MOST_BYTES)
    except zlib.error as problem:
        raise ValueError(f"a look cannot be unpacked: {problem}") from problem
    if inflater.unconsumed_tail:
        raise ValueError(f"a look has more than {MOST_BYTES >> 20} MiB")
    return json.loads(data.decode("utf-8", "surrogatepass"))


def chain_of(spec: dict[str, Any]) -> str:
    """The name of looks that resemble each other: of one server, and of one thoroughness."""
    return "/".join(str(spec.get(key) or "") for key in ("run", "server", "pid", "start", "full", "threads"))
