"""Judging a recorded wait again: from its samples alone, by the rules of today, with its own profile or another."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from runbook.diagnose.judge import RULES, judge
from runbook.diagnose.trail import RuleTrace, trail
from runbook.engine.doubt import ended_on_suspicion
from runbook.engine.memory import Memory
from runbook.engine.thread_rows import Unpacker
from runbook.model.event import AnyEvent, SampleTaken, WaitBegan, WaitEnded
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Sample
from runbook.model.units import dec_hook
from runbook.model.verdict import Diagnosis

OWN_RULES = frozenset(rule.__name__ for rule in RULES)


class Wait(msgspec.Struct, kw_only=True):
    """One wait of a journal: its question and profile, what was seen, how it ended (None: the journal does not say)."""

    step: str
    host: str
    question: Question
    profile: Profile
    samples: list[Sample] = []
    ended: WaitEnded | None = None


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules of today make of a wait. `certain`: false where it would have gone on, and `diagnosis` is what its box would say.

    `same`: verdict, kind and rule are the recorded ones; None where nothing was recorded or the step decided by itself.
    """

    wait: Wait
    diagnosis: Diagnosis
    certain: bool
    same: bool | None
    trail: tuple[RuleTrace, ...]


def waits(events: Iterable[AnyEvent]) -> list[Wait]:
    """The waits that can be judged again, in the order in which they began."""
    found: list[Wait] = []
    under_way: dict[tuple[str, str], tuple[Wait, Unpacker]] = {}
    for event in events:
        if isinstance(event, WaitBegan):
            profile = msgspec.convert(event.profile, Profile, dec_hook=dec_hook)
            wait = Wait(step=event.step, host=event.host, question=event.question, profile=profile)
            found.append(wait)
            under_way[event.step, event.host] = wait, Unpacker()
        elif isinstance(event, SampleTaken) and (event.step, event.sample.host) in under_way:
            wait, unpacker = under_way[event.step, event.sample.host]
            wait.samples.append(unpacker.unpack(event.sample, event.gone))
        elif isinstance(event, WaitEnded) and (event.step, event.host) in under_way:
            under_way.pop((event.step, event.host))[0].ended = event
    return [wait for wait in found if wait.samples]


def judge_again(wait: Wait, profile: Profile | None = None) -> Replayed:
    """The verdict of a wait at the moment at which it ended, as `judge` derives it from the record."""
    used = profile or wait.profile
    view, now = _view(wait)
    ends = wait.ended.ends if wait.ended is not None else "box"
    question = msgspec.structs.replace(wait.question, final=bool(ends))
    answer = judge(view, used, question, now)
    certain = answer is not None
    if answer is None:
        question = msgspec.structs.replace(question, final=True)
        answer = judge(view, used, question, now)
    assert answer is not None, "with `final` judge always answers"
    derived = ended_on_suspicion(answer) if ends == "suspect" else answer
    return Replayed(wait=wait, diagnosis=derived, certain=certain, same=_same(wait.ended, derived), trail=trail(view, used, question, now))


def _view(wait: Wait) -> tuple[list[Sample], float]:
    memory = Memory()
    for sample in wait.samples:
        memory.add(sample)
    return memory.view(), wait.ended.now if wait.ended is not None else wait.samples[-1].t


def _same(ended: WaitEnded | None, derived: Diagnosis) -> bool | None:
    if ended is None or ended.rule not in OWN_RULES:
        return None
    return (ended.verdict, ended.kind, ended.rule) == (derived.verdict, derived.kind, derived.rule)
