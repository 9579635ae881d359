"""A host's clock that jumps, in the middle of a wait: only the controller's own time and counters are compared."""

from __future__ import annotations

import random

import msgspec
import pytest

from runbook.diagnose.judge import judge
from runbook.model.question import Question
from tests.diagnose.stories import READY, SGLANG, T0, WEIGHTS, Story, answer, process, shard


def loading() -> Story:
    story = Story().at(0, log=WEIGHTS)
    for step in range(1, 15):
        story.at(10 * step, log=shard(step))
    return story


def stopped() -> Story:
    story = Story().at(0, log=WEIGHTS)
    for step in range(1, 15):
        story.at(10 * step, processes=[process(state="T" if step > 8 else "S")])
    return story


def serving() -> Story:
    story = Story().at(0, log=WEIGHTS)
    return story.at(10, log=READY).at(12, check=answer())


@pytest.mark.parametrize("story", [loading, stopped, serving], ids=lambda one: one.__name__)
@pytest.mark.parametrize("jump_s", [-86400.0, -3600.0, 3600.0, 1e9])
def test_a_jump_of_the_hosts_clock_changes_no_verdict(story, jump_s):
    samples = story().samples
    at = random.Random(jump_s).randrange(1, len(samples))
    jumped = [*samples[:at], *(msgspec.structs.replace(one, host_t=one.host_t + jump_s) for one in samples[at:])]
    asked = Question(about="healthy", since=T0, box_s=600.0, final=True)
    before, after = (judge(each, SGLANG, asked, samples[-1].t) for each in (samples, jumped))
    assert before == after and before is not None
