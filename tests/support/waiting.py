"""Wait for conditions, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 10.0, every: float = 0.02) -> object:
    """The first true answer of `condition`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(every)
    raise AssertionError(f"{condition} was not true within {seconds} s")
