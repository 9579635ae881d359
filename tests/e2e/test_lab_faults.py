"""The lab's faults through a playbook: a hang ends in its verdict, with culprit and evidence in the transcript; slow work ends well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo.lab import Ended, lab, play

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FAULTS = ("rank_stopped", "collective_mismatch", "slow_load")
ODD = 3
"""The rank that the lab's faults strike among four."""


@pytest.fixture(scope="module")
def ended() -> dict[str, Ended]:
    """How each of them ended; side by side on a lab of their own."""
    with lab() as state:
        return {one.fault: one for one in play(state, FAULTS, seen)}


def seen(one: Ended) -> Ended:
    """With what its transcript says, which goes with the lab's folder."""
    return one._replace(transcript=Path(one.outcome.json["transcript"]["markdown"]).read_text(), diagnosis=one.diagnosed())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_in_its_verdict(fault: str, ended: dict[str, Ended]) -> None:
    assert ended[fault].right, ended[fault].outcome.json["reason"]
    assert ended[fault].outcome.json["left_behind"] == []


@pytest.mark.parametrize("fault", ["rank_stopped", "collective_mismatch"])
def test_a_hang_of_ranks_names_the_odd_one_with_evidence(fault: str, ended: dict[str, Ended]) -> None:
    found = ended[fault].diagnosis
    assert found is not None and found.culprit is not None and found.culprit.rank == ODD, found
    assert found.evidence and f"rank {ODD}" in ended[fault].transcript
