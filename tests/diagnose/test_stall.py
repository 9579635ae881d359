"""The stall clock: renewed by strong progress, slower under weak signs, still while nobody can look."""

from __future__ import annotations

import msgspec
import pytest

from runbook.diagnose.stall import DEFAULT_BUDGET_S, FROZEN_CAP_S, stall
from runbook.diagnose.view import View
from runbook.model.question import Question
from runbook.model.sample import Absent, Blind, PressureSample, Seen
from tests.diagnose.scenes import proc, scene, stands, thread
from tests.diagnose.stories import SGLANG, T0, WEIGHTS, Story, process


def clock(story: Story, *, now: float | None = None, **question):
    asked = Question(about="state", since=T0, box_s=600, **question)
    return stall(View(story.samples, story.profile, asked, story.samples[-1].t if now is None else T0 + now))


def test_it_counts_from_the_first_look_until_something_moves() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=300_000 * int(min(second, 20)))]}, seconds=50)
    assert clock(story).since == T0 + 20
    assert clock(story).spent_s == pytest.approx(30)


@pytest.mark.parametrize("sign", ["a line that repeats", "cpu", "a trickle"])
def test_a_weak_sign_halves_its_speed(sign: str) -> None:
    def tell(second: float):
        if sign == "cpu":
            return {"processes": [proc(others=(thread(201, "", run_s=second * 0.9),))]}
        if sign == "a trickle":
            return {"processes": [proc(read_so_far=20_000 * int(second))]}
        return {"processes": [proc()], "log": f"alive {int(second)}\n"}

    assert clock(scene(tell, seconds=60)).spent_s == pytest.approx(30, abs=3)


def test_it_stands_still_while_nobody_can_look() -> None:
    story = scene(stands(), seconds=60)
    for index, sample in enumerate(story.samples):
        if 20 < sample.t - T0 <= 50:
            story.samples[index] = msgspec.structs.replace(
                sample, processes=Blind("link lost"), log=Blind("link lost"), link=Absent("reset")
            )
    assert clock(story).spent_s == pytest.approx(30, abs=2.1)


def test_a_gap_between_two_looks_counts_little() -> None:
    """The controller was asleep, or the host was."""
    story = Story().at(0, processes=[process(read=0)]).at(4000, processes=[process(read=0)])
    assert clock(story).spent_s <= 45


def test_its_budget_is_the_phases() -> None:
    story = Story(SGLANG).at(0, log=WEIGHTS).at(5)
    weights = next(float(phase.stall) for phase in SGLANG.phases if phase.id == "weights")
    assert (clock(story).phase, clock(story).budget_s) == ("weights", weights)
    assert clock(scene(stands(), seconds=5)).budget_s == DEFAULT_BUDGET_S


def test_a_rank_that_lags_behind_keeps_the_longer_budget() -> None:
    log = WEIGHTS + "[2031-04-02 08:11:09 TP1] Load weight begin.\n[2031-04-02 08:12:00 TP0] KV Cache is allocated. #tokens: 9\n"
    assert clock(Story(SGLANG).at(0, log=log)).budget_s == next(float(phase.stall) for phase in SGLANG.phases if phase.id == "weights")


def test_what_executes_nothing_gets_no_more_than_two_minutes() -> None:
    story = Story(SGLANG).at(0, log=WEIGHTS)
    for second in range(10, 140, 10):
        story.at(second, processes=[process()])
    assert clock(story).budget_s > FROZEN_CAP_S and clock(story).over_frozen() and not clock(story).over()


def test_the_authors_budget_is_not_touched() -> None:
    pressed = Seen(PressureSample(cpu=99.0, io=99.0, memory=0.0))
    story = Story(SGLANG).at(0, log=WEIGHTS, pressure=pressed).at(9, pressure=pressed)
    assert clock(story, stall_after_s=400).budget_s == 400 and not clock(story, stall_after_s=400).over_frozen()


def test_round_trips_that_take_much_longer_widen_it_and_it_says_so() -> None:
    story = Story()
    for second in range(0, 120, 2):
        story.at(second, link=Seen(0.4 if second < 80 else 4.0))
    assert clock(story).budget_s == 2 * DEFAULT_BUDGET_S and "instead of 0.4 s" in clock(story).notes[0]
