"""An engine's own numbers, and no number where there is none."""

from __future__ import annotations

import pytest

from runbook.diagnose.metrics import counters, from_answers, from_counters, from_log
from tests.diagnose.stories import SGLANG

ACCEPT = SGLANG.metrics["accept_length"]
OVER, UNDER = "sglang:generation_tokens_total", "sglang:spec_verify_calls_total"


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        ([{"meta_info": {"spec_accept_length": 3.5}}], 3.5),
        ([{"meta_info": {"completion_tokens": 40, "spec_verify_ct": 10}}], 4.0),
        ([{"meta_info": {"completion_tokens": 40, "spec_verify_ct": 0}}], None),
        ([{"meta_info": {"spec_accept_length": True}}, {"meta_info": []}, [], {}], None),
        ([{"meta_info": {"spec_accept_length": 2}}, {"meta_info": {"spec_accept_length": 4}}, {}], 3.0),
    ],
)
def test_a_field_of_the_answer(answers: list[object], value: float | None) -> None:
    found = from_answers(ACCEPT, answers)
    assert (found.value if found else None) == value


def test_the_growth_of_counters_over_the_window() -> None:
    before = counters(f'# HELP x\n{OVER}{{tp="0"}} 100\n{OVER}{{tp="1"}} 100\n{UNDER} 50\n')
    after = counters(f'{OVER}{{tp="0"}} 180\n{OVER}{{tp="1"}} 100\n{UNDER} 70\n')
    assert from_counters(ACCEPT, before, after)[:1] == (4.0,)


def test_counters_that_did_not_grow_or_are_not_there_give_no_number() -> None:
    assert from_counters(ACCEPT, {OVER: 5.0, UNDER: 5.0}, {OVER: 9.0, UNDER: 5.0}) is None
    assert from_counters(ACCEPT, {OVER: 5.0}, {OVER: 9.0}) is None
    assert counters("nonsense\nx NaN\n") == {}


def test_the_mean_of_the_log_lines() -> None:
    assert from_log(["1.0", "4.0", None, "x"])[:3] == (2.5, "log", 2)
    assert from_log([]) is None
