"""`runbook diagnose local --pid N --json`, typed for scenarios of each kind: its object fits the published schema, its exit status is
that of its verdict, and it keeps its time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.zoo.actor import collect
from tests.zoo.scenario import SCENARIOS
from tests.zoo.typed import ask

SEED, JOBS, MOST_S = 1, 3, 25.0
RIGHT = ("stopped", "child_dead", "raises", "throttled_load", "slow_health")
"""Those that can be told within that time; the last, a hang that cannot, is to say what would decide."""

collect()


@pytest.mark.slow
@pytest.mark.e2e
def test_the_answer_fits_its_schema_its_exit_status_and_its_time(tmp_path: Path) -> None:
    names = (*RIGHT, "lost_wakeup")
    with ThreadPoolExecutor(JOBS) as pool:
        outcomes = dict(zip(names, pool.map(lambda name: ask(SCENARIOS[name], SEED, tmp_path, MOST_S), names), strict=True))
    assert {name: outcomes[name].word for name in RIGHT} == dict.fromkeys(RIGHT, "right"), outcomes
    assert outcomes["lost_wakeup"].word in ("undecided", "right"), outcomes["lost_wakeup"]
