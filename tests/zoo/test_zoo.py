"""The scenarios that matter most, in real time: a live process is never called hung, a hung one is named with its kind and culprit.

They run side by side, once, before the first test; each test reads its outcome. The whole zoo: `make zoo`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runbook.engine.recording import load_recording
from runbook.engine.replay import judge_again, waits
from tests.zoo.actor import collect
from tests.zoo.looking import perform
from tests.zoo.outcome import Outcome
from tests.zoo.scenario import SCENARIOS

SEED = 1
"""Held out: nothing is tuned on it."""
JOBS = 5
LIVE_S = 75.0
"""Longer than the stall budget of a server that nothing is known about, and the two looks at its stacks."""
HUNG = ("rank_stopped", "deadlock", "child_dead", "stale_lock", "log_pipe")
ALIVE = ("mmap_warm", "throttled_load", "slow_gloo", "lock_holder_works", "carriage_returns")

collect()
pytestmark = [pytest.mark.slow, pytest.mark.e2e]
Zoo = Mapping[str, Outcome]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """The outcome of each scenario."""
    folder = tmp_path_factory.mktemp("zoo")

    def one(name: str) -> Outcome:
        return perform(SCENARIOS[name], SEED, folder, most_s=LIVE_S if SCENARIOS[name].is_alive else None)

    names = (*HUNG, *ALIVE)
    with ThreadPoolExecutor(JOBS) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


@pytest.mark.parametrize("name", HUNG)
def test_a_hang_is_proven_with_its_kind(name: str, zoo: Zoo) -> None:
    outcome = zoo[name]
    assert (outcome.verdict, outcome.kind_right) == ("hung", True), outcome
    assert outcome.culprit_right is not False, outcome


@pytest.mark.parametrize("name", ALIVE)
def test_a_live_twin_is_slow_and_never_hung(name: str, zoo: Zoo) -> None:
    assert zoo[name].verdict == "slow", zoo[name]


def test_a_recording_is_judged_again_alike(zoo: Zoo) -> None:
    for outcome in zoo.values():
        record = Path(outcome.recording)
        for wait in waits(load_recording(record.parent, record.name)):
            assert judge_again(wait).same, outcome


def test_there_are_enough_scenarios_and_each_is_told_apart() -> None:
    truths = [scenario.truth for scenario in SCENARIOS.values()]
    assert len(truths) >= 36 and truths.count("hung") >= 18 and truths.count("live") >= 18
    assert all(re.search(r"\w\.$", scenario.about) for scenario in SCENARIOS.values())


def test_a_hang_that_may_stay_undecided_has_a_live_twin_that_looks_like_it() -> None:
    excused = [scenario for scenario in SCENARIOS.values() if scenario.truth == "hung" and scenario.is_untold]
    assert len(excused) <= 4
    assert all(SCENARIOS[scenario.twin].is_alive and SCENARIOS[scenario.twin].silent for scenario in excused)
