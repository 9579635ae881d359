"""How a verdict came about: each rule in its order, whether it fired, and why or why not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runbook.diagnose.judge import RULES
from runbook.diagnose.view import View
from runbook.model.profile import Profile
from runbook.model.sample import Question, Sample


class RuleTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that was looked at. `fired` on the last one only: the first that answers gives the verdict."""

    rule: str
    fired: bool
    why: str


def trail(samples: Sequence[Sample], profile: Profile, question: Question, now: float) -> tuple[RuleTrace, ...]:
    """Every rule that was asked, in order, up to the one that fired."""
    view = View(samples, profile, question, now)
    found = []
    for rule in RULES:
        verdict = rule(view)
        if verdict is not None:
            found.append(RuleTrace(rule=rule.__name__, fired=True, why=verdict.reason))
            break
        found.append(RuleTrace(rule=rule.__name__, fired=False, why=(rule.__doc__ or "").split("\n")[0]))
    return tuple(found)
