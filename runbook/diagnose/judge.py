"""From samples to a verdict: a pure function. No clock, no IO, no randomness, so a recorded wait can be judged again.

Rules are tried in order and the first that fires gives the verdict; its id is cited. None from a rule means "not mine", never
"all is well". The order is part of the meaning: a dead server is not slow, and a foreign one is not a wrong check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from runbook.diagnose.answers import answered, equal_answers, never_matches, ready, wrong_server
from runbook.diagnose.child_deaths import child_dead
from runbook.diagnose.deadlocks import deadlock
from runbook.diagnose.deaths import dead, gone, unreachable
from runbook.diagnose.demands import unsatisfiable
from runbook.diagnose.devices import driver, gpu_lost
from runbook.diagnose.ends import serving, settled, slow, undecided
from runbook.diagnose.io_waits import io_blocked
from runbook.diagnose.memory import gpu_free, gpu_tool_missing, resource_held
from runbook.diagnose.peers import blocked_peer
from runbook.diagnose.pipe_waits import log_pipe, stdin
from runbook.diagnose.rank_deaths import rank_died
from runbook.diagnose.ranks import rank_desync, rank_missing
from runbook.diagnose.routes import proxied, wrong_address
from runbook.diagnose.stale_locks import stale_lock
from runbook.diagnose.stops import stopped
from runbook.diagnose.turning import livelock, spin
from runbook.diagnose.view import View
from runbook.model.profile import Profile
from runbook.model.question import Question
from runbook.model.sample import Absent, Sample
from runbook.model.verdict import Diagnosis

Rule = Callable[[View], Diagnosis | None]

RULES: tuple[Rule, ...] = (
    unreachable,
    dead,
    gone,
    rank_died,
    gpu_tool_missing,
    gpu_free,
    answered,
    ready,
    wrong_server,
    never_matches,
    equal_answers,
    proxied,
    wrong_address,
    gpu_lost,
    driver,
    stopped,
    log_pipe,
    stdin,
    stale_lock,
    child_dead,
    rank_missing,
    rank_desync,
    blocked_peer,
    io_blocked,
    spin,
    deadlock,
    livelock,
    unsatisfiable,
    serving,
    settled,
    resource_held,
    slow,
    undecided,
)


def judge(samples: Sequence[Sample], profile: Profile, question: Question, now: float) -> Diagnosis | None:
    """The verdict that these samples prove, or None to go on. With `question.final` it always answers; without, never while the host
    is out of reach: what was seen before says less with every second.

    `now`: controller unix seconds, as `Sample.t`. Never raises, whatever the samples hold.
    """
    if samples and isinstance(samples[-1].link, Absent) and not question.final:
        return None
    return judged(View(samples, profile, question, now))


def judged(view: View) -> Diagnosis | None:
    """The same of a view that others ask too."""
    for rule in RULES:
        verdict = rule(view)
        if verdict is not None:
            return _bounded(verdict, view.question)
    return None


def _bounded(verdict: Diagnosis, question: Question) -> Diagnosis:
    """A wait that its box ended names what set that box."""
    if question.final and question.limited_by and not verdict.limited_by and verdict.verdict != "passed":
        return msgspec.structs.replace(verdict, limited_by=question.limited_by)
    return verdict
