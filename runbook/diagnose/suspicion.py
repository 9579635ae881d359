"""What looks like a hang while a wait goes on. A suspicion is never a verdict and stops nothing; it asks for the looks that decide."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runbook.model.profile import Profile
from runbook.model.sample import Question, Sample


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` as in hung, `since` controller seconds of the last strong progress, `want` the looks that would decide.

    `want` holds full, stacks, collectives, kernel, cheapest first; stacks and collectives are taken twice, 10 s apart.
    """

    kind: str
    text: str
    since: float
    want: tuple[str, ...] = ()


def suspicion(samples: Sequence[Sample], profile: Profile, question: Question, now: float) -> Suspicion | None:
    """The suspicion that these samples raise, or None."""
    return None
