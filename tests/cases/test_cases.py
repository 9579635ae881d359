"""Real situations, judged by their log alone and by all their signals: never the wrong answer that somebody really gave."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from runbook.diagnose.metrics import from_log
from runbook.model.question import Expectation
from runbook.model.sample import CheckSample, Seen
from tests.cases.fixtures import SILENT_S, read
from tests.cases.other_twins import TWINS as OTHER_TWINS
from tests.cases.other_twins import changed as twin_of
from tests.cases.outcomes import (
    CASES,
    MUST_SAY,
    NOT_BY_THE_JUDGE,
    STORIES,
    WRONG_KINDS,
    allowed,
    by_signals,
    ends_fatally,
    kind_of,
    partial,
)
from tests.cases.telling import KNOWN
from tests.cases.twins import TWINS, changed, others_hold_the_gpus

WITH_LOG = [case for case in CASES if "fixture" in case]
TOLD = [case for case in CASES if case["id"] in STORIES]


def ids(case: dict) -> str:
    return case["id"]


def test_every_case_is_told():
    assert {case["id"] for case in CASES} == {*STORIES, *NOT_BY_THE_JUDGE}


@pytest.mark.parametrize("case", WITH_LOG, ids=ids)
def test_its_log_alone_is_not_misread_after_a_silence(case):
    found = read(case, SILENT_S).judged()
    assert found.verdict in {*allowed(case), "undecided"}, f"must not: {case['must_not']}\n{found.reason}"
    assert found.kind not in WRONG_KINDS.get(case["id"], ())


@pytest.mark.parametrize("case", WITH_LOG, ids=ids)
def test_its_log_alone_is_not_misread_while_it_is_written(case):
    """A second after a new line it may be called slow, unless that line is fatal."""
    told = read(case, 1.0)
    found = told.judged()
    may = {*allowed(case), "undecided"} | (set() if ends_fatally(told) else {"slow"})
    assert found.verdict in may, f"must not: {case['must_not']}\n{found.reason}"


@pytest.mark.parametrize("case", TOLD, ids=ids)
def test_its_signals_give_its_verdict(case):
    found = by_signals(case)
    may = allowed(case) | ({"undecided"} if partial(case) else set())
    assert found.verdict in may, f"must not: {case['must_not']}\n{found.rule}: {found.reason}"
    assert found.kind not in WRONG_KINDS.get(case["id"], ())
    wanted = kind_of(case)
    if wanted is not None and found.verdict == case["verdict"]:
        assert found.kind == wanted, found.reason
    if case["id"] in MUST_SAY and found.verdict != "undecided":
        assert re.search(MUST_SAY[case["id"]], f"{found.reason} {found.evidence} {found.culprit}")


def test_c38_a_draft_that_is_never_accepted_is_seen_in_its_metric():
    case = next(case for case in CASES if case["id"] == "C-38")
    sources = KNOWN.read("sglang").metrics["accept_length"]
    found = [re.search(sources["log"], line) for line in case["fixture"].splitlines()]
    reading = from_log([one["value"] for one in found if one])
    assert reading is not None and (reading.value, reading.n) == (1.0, 2)


@pytest.mark.parametrize("case", TWINS)
def test_its_live_twin_is_not_called_hung(case):
    found = changed(case, TWINS[case]).judged()
    assert found.verdict in ("slow", "undecided", "passed"), f"{found.rule}: {found.reason}"


def test_c36_a_check_shorter_than_the_engine_needs_can_never_pass_either():
    told = STORIES["C-36"]()
    hasty = Seen(CheckSample(url="http://127.0.0.1:30000/health", outcome="timeout", latency_s=0.5))
    found = told._replace(
        samples=[replace(one, check=hasty) for one in told.samples], question=replace(told.question, expect=Expectation())
    ).judged()
    assert (found.verdict, found.rule) == ("wrong_check", "never_matches") and "1s" in found.reason


def test_c15_a_scheduler_that_waits_for_another_job_is_not_called_hung():
    found = changed("C-15", others_hold_the_gpus).judged()
    assert found.verdict in ("slow", "undecided"), f"{found.rule}: {found.reason}"


@pytest.mark.parametrize("case", OTHER_TWINS)
def test_its_twin_that_is_well_is_not_condemned(case):
    change, right = OTHER_TWINS[case]
    found = twin_of(STORIES[case](), change).judged()
    assert found.verdict in right, f"{found.rule}: {found.reason}"
