"""child_dead: somebody waits for a child that is dead; beside it zombies that harm nobody."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import Seen
from runbook.model.waits import CallSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    PIPE_READ,
    SLEEP,
    WAIT4,
    beats,
    calls_at,
    connection,
    futex,
    proc,
    reads,
    scene,
    stack,
    stacks_at,
    stands,
    thread,
    waiting,
)
from tests.diagnose.stories import state


def zombie(code: int | None = 1, title: str = "python", **more):
    return proc(101, "", ppid=100, state="Z", title=title, exit_code=code, **more)


def at(second: float, loop: str = "closed", caught=()):
    """The stack and the calls of a parent that by its source only sleeps and logs."""
    looks = [msgspec.structs.replace(stack(100, "run (launch.py:8)"), loop=loop)]
    asked = calls_at(second, waiting(100, CallSample(tid=100), caught=caught), first=6.0)
    return {**stacks_at(second, *looks), **asked}


def polls(second: float, **more):
    return proc(wchan=SLEEP, run_s=second / 200, switches=int(second * 5), **more)


def test_a_failed_child_whose_parent_goes_round_and_prints_heartbeats_is_named() -> None:
    def tell(second: float):
        return {"processes": [polls(second), zombie()], "log": f"Waiting for 1 core engine proc: {int(second)}\n", **at(second)}

    assert state(scene(tell, seconds=10)) is None
    verdict = state(scene(tell, seconds=16))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.pid) == ("hung", "child_dead", "child_dead", 101)
    assert "ended with code 1" in verdict.reason


def test_a_queue_of_a_killed_producer() -> None:
    verdict = state(
        scene(lambda s: {"processes": [proc(wchan=PIPE_READ), zombie(-9)], **calls_at(s, waiting(100, reads(100)))}, seconds=16)
    )
    assert verdict.kind == "child_dead" and "signal 9" in verdict.reason


@pytest.mark.parametrize("call", [None, reads(100, 900), reads(100, known=False), futex(private=False), futex(timed=True)])
def test_an_idle_worker_that_reads_its_next_job_beside_the_zombie_of_a_tool_is_not_hung(call) -> None:
    """Its dispatcher outside is idle as well, or nobody knows who could write."""

    def tell(second: float):
        waits = calls_at(second, waiting(100, call)) if call is not None else {}
        return {"processes": [proc(wchan=PIPE_READ), zombie(1)], "peers": Seen((proc(900, LOOP),)), **waits}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


def test_a_zombie_beside_a_parent_that_reads_weights_is_harmless() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 300_000)), zombie()]}, seconds=60)
    assert state(story, final=True).verdict == "slow"


def test_a_zombie_beside_a_parent_that_computes_is_harmless() -> None:
    assert state(scene(lambda second: {"processes": [proc(run_s=second * 0.8), zombie()]}, seconds=150), final=True).verdict != "hung"


def test_a_zombie_beside_another_child_that_works_is_harmless() -> None:
    def tell(second: float):
        return {"processes": [polls(second), zombie(), proc(102, "", ppid=100, run_s=second * 0.5)]}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def test_a_parent_that_sleeps_for_a_given_time_comes_back() -> None:
    assert state(scene(stands(proc(wchan=SLEEP), zombie()), seconds=60)) is None


def test_a_parent_in_its_event_loop_waits_for_whatever_comes() -> None:
    assert state(scene(stands(proc(wchan=LOOP), zombie()), seconds=60)) is None


def test_a_parent_that_reads_from_another_host_does_not_wait_for_the_zombie() -> None:
    assert state(scene(stands(proc(wchan="wait_woken"), zombie(), sockets=Seen((connection(),))), seconds=60)) is None


def test_a_helper_that_ended_well_proves_nothing_while_its_parent_polls() -> None:
    assert state(scene(lambda second: {"processes": [polls(second), zombie(0)]}, seconds=150), final=True).verdict == "undecided"


def test_a_worker_that_ended_well_and_whose_parent_stands_still_takes_the_whole_budget() -> None:
    def tell(second: float):
        return {"processes": [proc(wchan=FUTEX), zombie(0)], **calls_at(second, waiting(100))}

    assert state(scene(tell, seconds=10)) is None
    assert state(scene(tell, seconds=60)).verdict == "hung"


@pytest.mark.parametrize("title", ["nvidia-smi", "python"])
@pytest.mark.parametrize("log", ["", "heartbeat: alive\n", "waiting for the next job\n", "still waiting for requests\n"])
def test_a_worker_that_polls_for_its_next_job_beside_the_zombie_of_a_tool_is_not_hung(title: str, log: str) -> None:
    """It may poll for something far away, and its call of the tool may long be forgotten."""

    def tell(second: float):
        return {"processes": [polls(second), zombie(9, title=title)], "log": log}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


def test_a_rank_that_failed_is_missed_by_a_parent_that_goes_round_without_a_word() -> None:
    def tell(second: float):
        return {"processes": [polls(second), zombie(1, title="worker", rank=1)], **at(second)}

    assert state(scene(tell, seconds=16)).kind == "child_dead"


@pytest.mark.parametrize(("loop", "caught"), [("open", ()), ("none", ()), ("", ()), ("closed", (17,))])
def test_a_parent_that_looks_at_what_others_may_write_or_hears_of_its_child_may_go_on(loop: str, caught: tuple[int, ...]) -> None:
    def tell(second: float):
        return {"processes": [polls(second), zombie(1, title="worker", rank=1)], **at(second, loop, caught)}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


@pytest.mark.parametrize(
    ("loop", "title", "kind"), [("closed", "python", "child_dead"), ("open", "python", None), ("closed", "nvidia-smi", None)]
)
def test_a_parent_that_stands_beside_its_heartbeats_and_a_dead_child_of_its_kind(loop: str, title: str, kind: str | None) -> None:
    def tell(second: float):
        parent = proc(others=(thread(150, SLEEP, switches=int(second / 2)),))
        waits = calls_at(second, waiting(100, futex(), CallSample(tid=150)))
        return {"processes": [parent, zombie(title=title)], **waits, **stacks_at(second, beats(150, loop=loop))}

    assert state(scene(tell, seconds=150), final=True).kind == kind


@pytest.mark.parametrize(("other", "kind"), [(futex(150), "child_dead"), (CallSample(tid=150), None)], ids=["stands", "sleeps"])
def test_a_thread_of_the_parent_that_may_still_act_may_end_the_child_that_is_waited_for(other: CallSample, kind: str | None) -> None:
    """As a timer does that kills a worker which takes too long."""

    def tell(second: float):
        parent = proc(wchan=WAIT4, others=(thread(150, LOOP),))
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="child", child=102), other), waiting(102))
        return {"processes": [parent, zombie(), proc(102, ppid=100)], **waits}

    assert state(scene(tell, seconds=100), final=True).kind == kind


@pytest.mark.parametrize("call", [futex(timed=True), CallSample(tid=100)])
def test_a_parent_that_stands_still_with_a_limit_of_time_comes_back(call: CallSample) -> None:
    def tell(second: float):
        taken = stacks_at(second, stack(100, "wait (threading.py:331)"))
        return {"processes": [proc(), zombie(1, title="worker", rank=1)], **calls_at(second, waiting(100, call)), **taken}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_tool_that_failed_beside_a_parent_that_says_it_waits_takes_the_whole_budget() -> None:
    def tell(second: float):
        return {
            "processes": [polls(second), zombie(9, title="nvidia-smi")],
            "log": f"still waiting for the driver, {int(second)} s\n",
            **at(second),
        }

    assert state(scene(tell, seconds=26)) is None
    assert state(scene(tell, seconds=60)).kind == "child_dead"


@pytest.mark.parametrize(
    "text",
    [
        "waiting before the restart of the worker, {} s left",
        "waiting to respawn rank 0 in {}",
        "waiting for back-off: {}",
        "retry waits {} s",
    ],
)
def test_a_supervisor_that_counts_down_to_a_restart_is_not_hung(text: str) -> None:
    def tell(second: float):
        return {"processes": [polls(second), zombie(3)], "log": text.format(int(200 - second)) + "\n"}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_supervisor_that_has_started_another_worker_is_not_hung() -> None:
    def tell(second: float):
        fresh = [proc(102, LOOP, ppid=100, age_s=second - 6)] if second >= 6 else []
        return {"processes": [polls(second), zombie(3), *fresh], "log": f"waiting for a worker: {int(second)}\n"}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"
