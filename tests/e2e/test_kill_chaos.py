"""A sample of the kills of tests/chaos/patch_kills.py, at random but fixed points."""

from __future__ import annotations

import pytest

from tests.chaos.patch_kills import plan, table, trials

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_no_file_stays_changed_or_torn_whoever_is_killed():
    seeds = range(1, 21)
    assert {victim for seed in seeds for victim in plan(seed).victims} == {"controller", "helper", "keeper"}
    results = trials(seeds, at_once=5)
    assert len(results) == 20
    assert not any(result.faults for result in results), table(results)
    assert any(result.changed for result in results), "no kill came while the file was patched: that proves nothing"
