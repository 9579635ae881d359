"""Suspicion asks for the looks that would decide, while a wait goes on; the trail says why each rule fired or did not."""

from __future__ import annotations

import msgspec
import pytest

from runbook.diagnose.judge import RULES, judge
from runbook.diagnose.suspicion import suspicion
from runbook.diagnose.trail import trail
from runbook.diagnose.view import View
from runbook.model.gpu import GpuSample
from runbook.model.question import Question
from runbook.model.sample import Blind, Seen
from runbook.model.verdict import HUNG_KINDS
from tests.diagnose.scenes import FUTEX, LOOP, PIPE_WRITE, RECV, SLEEP, connection, lock_file, proc, scene, stack, stacks_at, stands
from tests.diagnose.stories import READY, SGLANG, T0, answer, listener


def suspect(story, **question):
    asked = Question(about="state", since=T0, box_s=600, **question)
    return suspicion(View(story.samples, story.profile, asked, story.samples[-1].t))


def test_a_tree_that_executes_nothing_is_suspected_after_two_looks() -> None:
    assert suspect(scene(stands(), seconds=8)) is None
    found = suspect(scene(stands(), seconds=12))
    assert (found.kind, found.since, found.want) == ("deadlock", T0, ("stacks",))


def test_looks_that_were_taken_are_not_asked_for_again_at_once() -> None:
    tell = lambda second: {"processes": [proc()], **stacks_at(second, stack(100, "wait (threading.py:1)"))}  # noqa: E731
    assert suspect(scene(tell, seconds=26)).want == ()
    assert suspect(scene(tell, seconds=80)).want == ("stacks",)


def test_ranks_are_asked_for_their_numbers_and_a_host_with_gpus_for_its_kernel() -> None:
    tree = [proc(101 + n, ppid=100, rank=n) for n in range(2)]
    tell = stands(proc(wchan="do_wait"), *tree, kernel=Blind("not asked"), gpus=Seen((GpuSample(index=0, name="g", used=0, total=9),)))
    assert suspect(scene(tell, seconds=12)).want == ("stacks", "collectives", "kernel")


def test_a_cheap_look_alone_asks_for_a_full_one() -> None:
    story = scene(stands(), seconds=12)
    for index, sample in enumerate(story.samples):
        story.samples[index] = type(sample)(
            **{name: getattr(sample, name) for name in ("t", "host", "host_t", "boot_id", "processes", "log", "exit")}
        )
    assert suspect(story).want[0] == "full"


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        ("stopped", [proc(state="T")]),
        ("child_dead", [proc(wchan=SLEEP, switches=9), proc(101, "", ppid=100, state="Z", exit_code=1)]),
        ("log_pipe", [proc(wchan=PIPE_WRITE)]),
        ("blocked_peer", [proc(wchan=RECV)]),
        ("io_blocked", [proc(wchan="io_schedule", state="D")]),
    ],
)
def test_its_kind_is_what_the_first_look_makes_one_think_of(kind: str, tree: list) -> None:
    found = suspect(scene(stands(*tree, sockets=Seen((connection(peer_pid=100),))), seconds=12))
    assert found.kind == kind and found.kind in HUNG_KINDS


def test_a_poller_beside_an_old_lock_file_is_asked_for_its_stack() -> None:
    tell = lambda second: {"processes": [proc(wchan=SLEEP, switches=int(second * 9))], "locks": Seen((lock_file(),))}  # noqa: E731
    found = suspect(scene(tell, seconds=12))
    assert (found.kind, found.want) == ("stale_lock", ("stacks",))


@pytest.mark.parametrize("wchan", [LOOP, FUTEX])
def test_an_idle_worker_beside_an_old_lock_file_is_not_suspected_of_a_wait_for_it(wchan: str) -> None:
    """Such files lie about in the cache of every compiler; who waits for one wakes and looks."""
    tell = lambda second: {"processes": [proc(wchan=wchan)], "locks": Seen((lock_file(),))}  # noqa: E731
    assert all(found is None or found.kind != "stale_lock" for found in (suspect(scene(tell, seconds=s)) for s in (12, 30, 60)))


def test_a_busy_host_on_which_nobody_has_looked_who_holds_the_file_asks_for_a_stack_all_the_same() -> None:
    unseen = msgspec.structs.replace(lock_file(), holder_known=False)
    tell = lambda second: {"processes": [proc(wchan=SLEEP, switches=int(second * 9))], "locks": Seen((unseen,))}  # noqa: E731
    assert suspect(scene(tell, seconds=12)).kind == "stale_lock"


def test_one_stack_of_a_wait_for_a_lock_file_asks_for_the_second() -> None:
    def tell(second: float):
        taken = stacks_at(second, stack(100, "wait (torch/utils/file_baton.py:49)", "load (cpp_extension.py:1)"))
        return {"processes": [proc(wchan=SLEEP, switches=int(second * 9))], "locks": Seen((lock_file(),)), **taken}

    assert [suspect(scene(tell, seconds=second)).kind for second in (12, 16, 22, 26)] == ["stale_lock"] * 4
    assert suspect(scene(tell, seconds=16)).want == ("stacks",)


def test_the_suspicion_names_the_lock_file_that_the_stack_names() -> None:
    def tell(second: float):
        taken = msgspec.structs.replace(stack(100, "wait (torch/utils/file_baton.py:49)"), lock_file="/b/lock")
        locks = Seen((lock_file("/a/lock"), lock_file("/b/lock")))
        return {"processes": [proc(wchan=SLEEP, switches=int(second * 9))], "locks": locks, **stacks_at(second, taken)}

    assert ["/b/lock" in suspect(scene(tell, seconds=second)).text for second in (12, 16)] == [False, True]


def test_a_poller_that_by_its_stack_looks_at_no_lock_is_not_suspected_any_more() -> None:
    def tell(second: float):
        taken = stacks_at(second, stack(100, "poll_jobs (scheduler.py:8)"))
        return {"processes": [proc(wchan=SLEEP, switches=int(second * 9))], "locks": Seen((lock_file(),)), **taken}

    assert suspect(scene(tell, seconds=12)).kind == "stale_lock"
    found = suspect(scene(tell, seconds=28))
    assert found is None or found.kind != "stale_lock"


def test_missing_ranks_are_suspected() -> None:
    assert suspect(scene(stands(proc(wchan="do_wait"), proc(101, ppid=100, rank=0)), seconds=12), ranks=2).kind == "rank_missing"


def test_a_core_spent_on_nothing_is_suspected_after_half_of_its_budget() -> None:
    tell = lambda second: {"processes": [proc(run_s=second * 0.95, wchan="", state="R")]}  # noqa: E731
    assert suspect(scene(tell, seconds=20)) is None
    assert suspect(scene(tell, seconds=40)).kind == "spin"


def test_progress_an_idle_server_and_a_good_answer_are_not_suspected() -> None:
    assert suspect(scene(lambda second: {"processes": [proc(read_so_far=int(second * 300_000))]}, seconds=60)) is None
    idle = lambda second: {"processes": [proc(wchan=LOOP)], "log": READY if not second else "", "listeners": listener()}  # noqa: E731
    assert suspect(scene(idle, seconds=600, profile=SGLANG)) is None
    assert suspect(scene(stands(proc(), check=answer(), listeners=listener()), seconds=60)) is None


def test_the_trail_ends_with_the_rule_that_gave_the_verdict() -> None:
    story = scene(stands(), seconds=60)
    asked = Question(about="state", since=T0, box_s=60, final=True)
    found = trail(story.samples, story.profile, asked, story.samples[-1].t)
    assert (found[-1].rule, found[-1].fired) == (judge(story.samples, story.profile, asked, story.samples[-1].t).rule, True)
    assert [one.rule for one in found] == [rule.__name__ for rule in RULES][: len(found)] and not any(one.fired for one in found[:-1])


def test_a_hung_rule_that_did_not_fire_says_what_stood_for_and_against_it() -> None:
    story = scene(stands(proc(wchan=SLEEP)), seconds=60)
    found = trail(story.samples, story.profile, Question(about="state", since=T0, box_s=60, final=True), story.samples[-1].t)
    why = next(one.why for one in found if one.rule == "deadlock")
    assert "stall clock 1m of 30s" in why and "sleeps for a given time" in why and "when the stall budget is spent" in why
