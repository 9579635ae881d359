"""rank_died: who is dead, who is replaced, and which of several was the first."""

from __future__ import annotations

import pytest

from tests.diagnose.scenes import FUTEX, proc, scene
from tests.diagnose.stories import load_profile, state
from tests.diagnose.test_ranks import parent, rank


def died(second: float, at: float = 6.0, code: int | None = -9, **more):
    dead = proc(103, "", ppid=100, state="Z", title="sglang::schedul", exit_code=code)
    return {"processes": [parent(), rank(0), rank(1), rank(2) if second < at else dead], **more}


def test_a_rank_that_was_killed_is_a_crash_within_seconds() -> None:
    assert state(scene(died, seconds=6)) is None
    verdict = state(scene(died, seconds=10))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.rank) == ("crashed", "rank_died", "rank_died", 2)


def test_a_rank_that_died_before_anybody_looked_is_known_by_its_peers() -> None:
    verdict = state(scene(lambda second: died(second, at=-1), seconds=6), ranks=3)
    assert (verdict.kind, verdict.culprit.rank) == ("rank_died", 2)


def test_a_rank_that_is_replaced_is_no_crash() -> None:
    def tell(second: float):
        told = died(second)
        again = proc(160, FUTEX, ppid=100, rank=2, title="sglang::scheduler_TP2", run_s=second)
        return {"processes": [*told["processes"], *([again] if second > 8 else [])]}

    assert state(scene(tell, seconds=20)) is None


@pytest.mark.parametrize(("profile", "kind"), [("sglang", "rank_died"), ("torchrun", None)])
def test_a_worker_that_is_gone_without_a_code_is_a_crash_where_none_is_ever_started_anew(profile: str, kind: str | None) -> None:
    """Its parent has collected it, and works on for its own end."""

    def tell(second: float):
        worker = [proc(101, ppid=100, title="sglang::scheduler_TP0", rank=0)] if second < 8 else []
        return {"processes": [proc(read_so_far=int(second * 300_000)), proc(102, ppid=100, title="sglang::scheduler_TP1", rank=1), *worker]}

    verdict = state(scene(tell, seconds=12, profile=load_profile(profile)))
    assert (verdict and verdict.kind) == kind


def test_ranks_that_end_well_while_the_rest_works_are_no_crash() -> None:
    def tell(second: float):
        told = died(second, code=0)
        return {"processes": [proc(read_so_far=int(second * 300_000)), *told["processes"][1:]]}

    assert state(scene(tell, seconds=40)) is None


SCHEDULER = proc(101, ppid=100, title="sglang::scheduler", rank=0)
DETOKENIZER = proc(102, ppid=100, title="sglang::detokenizer")
CORE = proc(103, ppid=100, title="VLLM::EngineCore")
WORKER = proc(104, ppid=103, title="VLLM::Worker")
SAID = "Rank 0 scheduler died during initialization (exit code: -9)\n"


@pytest.mark.parametrize(
    ("engine", "both", "log", "named"),
    [
        ("sglang", (DETOKENIZER, SCHEDULER), SAID, "sglang::scheduler"),
        ("sglang", (DETOKENIZER, SCHEDULER), "", None),
        ("sglang", (rank(0), rank(1)), "[2026-11-30 12:00:00 TP1] torch.OutOfMemoryError: CUDA out of memory\n", "sglang::scheduler_TP1"),
        ("sglang", (rank(0), rank(1)), "", None),
        ("vllm", (WORKER, CORE), "", "VLLM::EngineCore"),
    ],
)
def test_of_two_that_are_gone_in_one_look_the_first_is_named_or_nobody(engine, both, log, named) -> None:
    """Its engine ends the others in the same moment, and the kernel ends the children of a dead parent."""

    def tell(second: float):
        said = {"log": log} if log and second == 8 else {}
        return {"processes": [proc(read_so_far=int(second * 300_000)), *(both if second < 8 else ())], **said}

    verdict = state(scene(tell, seconds=12, profile=load_profile(engine)))
    assert (verdict.kind, verdict.culprit and verdict.culprit.title) == ("rank_died", named)
    assert named is not None or all(one.title in verdict.reason for one in both)


def test_who_is_gone_before_the_others_is_the_first_whatever_the_log_says() -> None:
    def tell(second: float):
        there = [*([DETOKENIZER] if second < 8 else []), *([SCHEDULER] if second < 10 else [])]
        return {"processes": [proc(read_so_far=int(second * 300_000)), *there], **({"log": SAID} if second == 10 else {})}

    verdict = state(scene(tell, seconds=14, profile=load_profile("sglang")))
    assert verdict.culprit.title == "sglang::detokenizer"
