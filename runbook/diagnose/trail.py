"""How a verdict came about: each rule in its order, whether it fired, and why or why not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import msgspec

from runbook.diagnose.judge import RULES
from runbook.diagnose.stall import stall
from runbook.diagnose.standstill import excused, standstill
from runbook.diagnose.view import View
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.units import format_duration


class RuleTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that was looked at. `fired` on the last one only: the first that answers gives the verdict."""

    rule: str
    fired: bool
    why: str


def trail(samples: Sequence[Sample], profile: Profile, question: Question, now: float) -> tuple[RuleTrace, ...]:
    """Every rule that was asked, in order, up to the one that fired."""
    view = View(samples, profile, question, now)
    state = _state(view) if view.samples and question.about != "gpu_free" else ""
    found = []
    for rule in RULES:
        verdict = rule(view)
        if verdict is not None:
            found.append(RuleTrace(rule=rule.__name__, fired=True, why=verdict.reason))
            break
        when = _when(rule.__doc__ or "")
        hangs = (rule.__doc__ or "").startswith("hung/")
        found.append(RuleTrace(rule=rule.__name__, fired=False, why=f"not: {when}" + (f". {state}" if hangs and state else "")))
    return tuple(found)


def _when(doc: str) -> str:
    """The first sentence of a rule's description: when it fires."""
    text = " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())
    return text.partition(": ")[2].rstrip(".")


def _state(view: View) -> str:
    """What stands for and against a hang now."""
    stand, clock = view.once(standstill), view.once(stall)
    parts = [f"stall clock {format_duration(clock.spent_s)} of {format_duration(clock.budget_s)}"]
    parts.append(f"evidence: {', '.join(dict.fromkeys(proof.kind for proof in stand.proofs)) or 'none'}")
    excuse = excused(view)
    against = [*([excuse] if excuse else []), *stand.actors[:2], *(one.text for one in stand.unseen[:2])]
    parts.append(f"against: {'; '.join(against) or 'nothing'}")
    return "; ".join(parts)
