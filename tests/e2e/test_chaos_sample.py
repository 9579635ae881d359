"""A sample of `make chaos`: connections killed at the host's side, and start files that talk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import hosts, links
from tests.chaos.frame import Scenario
from tests.chaos.net_host import missing
from tests.chaos.run import scenarios

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(missing()), reason=missing() or "it can be played")]


@pytest.mark.parametrize("scenario", [links.SCENARIOS[8], hosts.SCENARIOS[4]], ids=lambda scenario: scenario.name)
def test_a_fault_changes_no_verdict_and_leaves_nothing(scenario: Scenario, tmp_path: Path) -> None:
    outcome = scenario.play(random.Random(1), tmp_path)
    assert outcome.ok, outcome


def test_every_scenario_has_a_name_of_its_own() -> None:
    names = [name for name, _ in scenarios()]
    assert len(names) == len(set(names)) > 20
