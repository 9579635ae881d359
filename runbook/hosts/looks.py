"""Looks at a server as they come over the channel: each brings only what changed since the one before of its chain."""

from __future__ import annotations

import threading
from typing import Any

from runbook.onhost import changes

MOST_CHAINS = 16


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

    def take(self, chain: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The whole look of an answer. Raises OutOfStep."""
        if "number" not in answer:
            return answer
        with self._lock:
            number, before = self._last.pop(chain, (0, {}))
            if "look" in answer:
                found = answer["look"]
            elif answer["since"] == number:
                found = changes.applied(before, answer["changes"])
            else:
                raise OutOfStep(f"look {answer['number']} builds on look {answer['since']}, and the last one here is {number}")
            self._last[chain] = (answer["number"], found)
            while len(self._last) > MOST_CHAINS:
                del self._last[next(iter(self._last))]
        return dict(found)


def chain_of(spec: dict[str, Any]) -> str:
    """The name of looks that resemble each other: of one server, and of one thoroughness."""
    return "/".join(str(spec.get(key) or "") for key in ("run", "server", "pid", "start", "full", "threads"))
