"""Times of the day as the transcript writes them: UTC, since its readers sit elsewhere."""

from __future__ import annotations

import datetime

LATEST = 253_402_300_000.0


def moment(t: float) -> datetime.datetime:
    """A unix time as UTC. One that no calendar has is the nearest that it has."""
    return datetime.datetime.fromtimestamp(min(max(t if t == t else 0.0, 0.0), LATEST), datetime.timezone.utc)


def at(t: float) -> str:
    """Hour, minute, second."""
    return f"{moment(t):%H:%M:%S}"


def day(t: float) -> str:
    """Date and time of the day."""
    return f"{moment(t):%Y-%m-%d %H:%M:%S} UTC"
