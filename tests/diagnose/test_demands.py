"""unsatisfiable: it waits for more than there is; beside it the first such lines of any start."""

from __future__ import annotations

import pytest

from runbook.model.gpu import GpuSample
from runbook.model.sample import Seen
from tests.diagnose.scenes import SLEEP, connection, proc, scene
from tests.diagnose.stories import state


def asks(second: float, *, have: int | None = 1, wanted: str = "{'GPU': 2.0}"):
    line = (
        f"Waiting for creating a placement group of specs [{wanted}] for {int(second)} s\n" if int(second) in (10, 30, 60, 100, 150) else ""
    )
    found = {"processes": [proc(wchan=SLEEP, run_s=second / 100, switches=int(second))], "log": line}
    return {
        **found,
        **({"gpus": Seen(tuple(GpuSample(index=n, name="g", used=0, total=9) for n in range(have)))} if have is not None else {}),
    }


def test_more_gpus_than_the_host_has_are_never_given() -> None:
    assert state(scene(asks, seconds=28)) is None
    verdict = state(scene(asks, seconds=120))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.confidence) == ("hung", "unsatisfiable", "unsatisfiable", "likely")
    assert "wants 2 GPUs, this host has 1" in verdict.reason


def test_gpus_that_are_there_will_be_given_back() -> None:
    assert state(scene(lambda second: asks(second, have=4), seconds=150), final=True).verdict == "undecided"


@pytest.mark.parametrize("change", [{"have": None}, {"wanted": "GPUs"}])
def test_where_the_numbers_cannot_be_compared_it_is_undecided(change: dict) -> None:
    assert state(scene(lambda second: asks(second, **change), seconds=150), final=True).verdict == "undecided"


def test_a_cluster_may_have_more_gpus_than_this_host() -> None:
    story = scene(lambda second: {**asks(second), "sockets": Seen((connection(peer="10.0.0.2:6379"),))}, seconds=150)
    assert state(story, final=True).verdict == "undecided"


def test_one_such_line_says_nothing() -> None:
    def tell(second: float):
        told = asks(second)
        return {**told, "log": told["log"] if int(second) == 10 else ""}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"
