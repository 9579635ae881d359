"""unsatisfiable: it waits for more than there is; beside it the first such lines of any start."""

from __future__ import annotations

from runbook.model.sample import GpuSample, Seen
from tests.diagnose.scenes import SLEEP, proc, scene


def state(story, **question):
    return story.judge(about="state", **question)


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
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.confidence) == ("hung", "unsatisfiable", "unsatisfiable", "strong")
    assert "wants 2 GPUs, this host has 1" in verdict.reason


def test_gpus_that_are_there_will_be_given_back() -> None:
    assert state(scene(lambda second: asks(second, have=4), seconds=400), final=True).verdict == "undecided"


def test_where_their_number_is_not_known_it_is_only_likely() -> None:
    assert state(scene(lambda second: asks(second, have=None, wanted="GPUs"), seconds=160)).confidence == "likely"


def test_one_such_line_says_nothing() -> None:
    def tell(second: float):
        told = asks(second)
        return {**told, "log": told["log"] if int(second) == 10 else ""}

    assert state(scene(tell, seconds=300), final=True).verdict == "undecided"
