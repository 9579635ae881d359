"""deadlock: everybody waits for another one here. Beside it its live twins, which look the same from outside."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.gpu import GpuSample
from runbook.model.sample import Blind, CheckSample, LockSample, PressureSample, Seen
from runbook.model.waits import CallSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    PIPE_READ,
    PIPE_WRITE,
    RECV,
    SLEEP,
    WAIT4,
    beats,
    calls_at,
    connection,
    futex,
    locked,
    locks_at,
    proc,
    scene,
    stack,
    stacks_at,
    stands,
    thread,
    waiting,
)
from tests.diagnose.stories import READY, SGLANG, answer, listener, state


def chatty(second: float, loop: str = "closed"):
    """A metrics thread that wakes, burns a little and logs a number."""
    metrics = thread(201, SLEEP, run_s=second * 0.02, switches=int(second * 3))
    return {
        "processes": [locked(metrics)],
        **locks_at(second, beside=(beats(201, loop=loop),)),
        "log": f"metrics: queue={int(second * 7) % 13}\n",
    }


def test_a_tree_that_executes_nothing_at_a_lock_is_a_deadlock_once_its_budget_is_spent() -> None:
    assert state(scene(stands(), seconds=36)) is None
    verdict = state(scene(stands(), seconds=44))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.confidence) == ("hung", "deadlock", "deadlock", "strong")
    assert verdict.culprit.pid == 100
    assert {row.signal for row in verdict.evidence} >= {"frozen_threads", "bytes_moved", "place", "stall_clock"}


def test_a_chatty_metrics_thread_saves_nobody() -> None:
    assert state(scene(chatty, seconds=10)) is None
    assert state(scene(chatty, seconds=44)).kind == "deadlock"


@pytest.mark.parametrize("loop", ["open", "looks", "none", ""])
def test_a_thread_that_wakes_and_by_its_source_may_do_more_may_free_the_locks(loop: str) -> None:
    assert state(scene(lambda second: chatty(second, loop), seconds=200), final=True).verdict == "undecided"


def _told(second: float, **changes):
    """Both threads' stacks, changed."""
    told = locks_at(second)
    taken = told.get("stacks")
    if taken is not None:
        told["stacks"] = Seen(tuple(msgspec.structs.replace(one, **changes) for one in taken.value))
    return {"processes": [locked()], **told}


@pytest.mark.parametrize("changes", [{"holds": ()}, {"wants": ""}, {"wants": "third"}, {"holds": ("first", "second")}, {"source": "wchan"}])
def test_two_threads_at_two_locks_are_a_circle_only_as_their_source_is_read(changes) -> None:
    """Both locks may be held by a third that frees them later."""
    sleeper = locked(thread(160, SLEEP))
    verdict = state(scene(lambda s: {**_told(s, **changes), "processes": [sleeper]}, seconds=200), final=True)
    assert verdict.verdict == "undecided"


def test_threads_at_mutexes_of_the_c_library_whose_owners_wait_for_each_other_are_a_deadlock() -> None:
    def tell(second: float, owner: int = 100):
        calls = waiting(100, futex(100, owner=150), futex(150, at=8, owner=owner))
        return {"processes": [locked()], **calls_at(second, calls), **stacks_at(second, stack(100, "forward (model.py:3)"))}

    assert state(scene(tell, seconds=60)).kind == "deadlock"


def test_at_the_end_of_a_box_that_is_too_short_it_says_what_speaks_for_a_hang_and_what_is_left() -> None:
    verdict = state(scene(stands(), seconds=120), final=True, stall_after_s=150)
    assert verdict.verdict == "undecided"
    assert "for a hang speaks: the main thread executed nothing" in verdict.reason and "30s of its stall budget are left" in verdict.reason
    assert any("longer" in text for text in verdict.next)


def test_a_thread_that_computes_beside_the_waiting_main_thread_is_a_worker() -> None:
    def tell(second: float):
        return {"processes": [proc(others=(thread(201, "", run_s=second * 0.5, state="R"),))]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_thread_that_hardly_gets_a_turn_on_a_busy_host_works_too() -> None:
    def tell(second: float):
        return {"processes": [proc(others=(thread(201, "", run_s=second * 0.03, wait_s=second * 0.9),))]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_bytes_read_by_another_thread_are_progress() -> None:
    """A pool that reads with pread: no offset moves, the main thread stands."""
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 300_000))]}, seconds=200)
    assert state(story, final=True).verdict == "slow"


def test_a_trickle_under_the_floor_keeps_its_process_from_being_called_hung() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 21_000), switches=int(second / 3))]}, seconds=150)
    assert (state(story, final=True).verdict, state(story, final=True).kind) == ("slow", "crawling")


def test_progress_under_every_floor_before_it_stood_still_does_not_spend_the_time_that_proof_needs() -> None:
    """It wrote below the floor for a minute and has stood for twenty seconds."""
    story = scene(lambda second: {"processes": [proc(switches=int(min(second, 60)))]}, seconds=80)
    assert state(story) is None


def test_a_sleep_ends_by_itself() -> None:
    assert state(scene(stands(proc(wchan=SLEEP)), seconds=150), final=True).verdict == "undecided"


def test_an_unknown_wait_may_be_a_sleep() -> None:
    assert state(scene(stands(proc(wchan="0")), seconds=150), final=True).verdict == "undecided"


def test_an_event_loop_waits_for_whatever_comes() -> None:
    assert state(scene(stands(proc(wchan=LOOP)), seconds=150), final=True).verdict == "undecided"


@pytest.mark.parametrize("unseen", ["sockets", "io", "log", "counters", "weights"])
def test_where_a_source_of_progress_cannot_be_read_nobody_is_hung(unseen: str) -> None:
    def tell(second: float):
        sources = {"processes": [proc(io=Blind("not permitted") if unseen == "io" else proc().io)]}
        if unseen == "weights":
            sources["processes"] = [proc(mapped_weights=Blind("not permitted"))]
        if unseen == "sockets":
            sources["sockets"] = Blind("not permitted")
        if unseen == "counters":
            sources["sockets"] = Seen((connection(peer_pid=100, received=None),))
        return sources

    story = scene(tell, seconds=150)
    if unseen == "log":
        for index, sample in enumerate(story.samples):
            story.samples[index] = msgspec.structs.replace(sample, log=Blind("permission denied"))
    verdict = state(story, final=True)
    assert verdict.verdict == "undecided"


def test_a_connection_to_another_host_may_bring_what_it_waits_for() -> None:
    """A download thread waits in a receive; its peer is on another host, and whether that works nobody can see here."""
    tree = proc(others=(thread(201, "wait_woken"),))
    assert state(scene(stands(tree, sockets=Seen((connection(),))), seconds=150), final=True).verdict == "undecided"


def test_an_idle_connection_that_nobody_reads_is_no_excuse() -> None:
    assert state(scene(stands(sockets=Seen((connection(),))), seconds=60)).kind == "deadlock"


def test_a_process_that_listens_may_be_an_idle_server() -> None:
    """Its main thread joins the thread that serves."""
    waits = Seen((connection(state="LISTEN", peer="0.0.0.0:0", received=0),))
    assert (
        state(scene(stands(proc(others=(thread(201, "inet_csk_accept"),)), sockets=waits), seconds=150), final=True).verdict == "undecided"
    )


def test_a_ready_server_without_a_request_is_idle() -> None:
    story = scene(
        lambda second: {"processes": [proc()], "log": READY if second == 0 else "", "listeners": listener()}, seconds=150, profile=SGLANG
    )
    assert story.judge(final=True).verdict == "undecided"
    assert state(story, final=True).verdict == "passed"


def test_a_ready_server_that_leaves_a_check_unanswered_has_no_such_excuse() -> None:
    late = Seen(CheckSample(url="http://127.0.0.1:30000/health", outcome="timeout", latency_s=30.0))

    def tell(second: float):
        return {"processes": [locked()], **locks_at(second), "log": READY if second == 0 else "", "check": late, "listeners": listener()}

    assert scene(tell, seconds=260, profile=SGLANG).judge().kind == "deadlock"


def test_a_good_answer_is_life() -> None:
    story = scene(stands(proc(), check=answer(404, path="/x"), listeners=listener()), seconds=200)
    assert story.judge(final=True).verdict == state(story).verdict == "wrong_check"


def test_a_503_is_judged_by_what_the_threads_do() -> None:
    """Long prefill: the health check fails while a thread computes. A deadlock: it fails as well."""
    busy = scene(lambda second: {"processes": [proc(run_s=second * 0.9)], "check": answer(503), "listeners": listener()}, seconds=150)
    assert busy.judge(final=True).verdict != "hung"
    assert scene(stands(check=answer(503), listeners=listener()), seconds=120).judge().kind == "deadlock"


def test_a_parent_that_only_looks_after_its_child_leaves_the_blame_to_it() -> None:
    def tell(second: float):
        parent = waiting(100, CallSample(tid=100, call="child"))
        return {"processes": [proc(wchan=WAIT4), proc(101, ppid=100, others=(thread(150),))], **locks_at(second, 101, more=(parent,))}

    verdict = state(scene(tell, seconds=60))
    assert (verdict.kind, verdict.culprit.pid) == ("deadlock", 101)


def test_workers_without_a_task_below_a_parent_that_polls_are_not_hung() -> None:
    """The parent waits for something far away, the pool for tasks: everything but the parent stands at a lock."""
    story = scene(
        lambda second: {"processes": [proc(wchan=SLEEP, run_s=second / 100, switches=int(second)), proc(101, ppid=100)]}, seconds=150
    )
    assert state(story, final=True).verdict == "undecided"


def test_a_worker_is_innocent_by_its_stack_when_it_waits_for_a_task() -> None:
    def tell(second: float):
        idle = stack(101, "SimpleQueue.get (multiprocessing/queues.py:386)", "worker (multiprocessing/pool.py:114)")
        taken = stacks_at(second, idle, stack(100, "poll_remote (app.py:9)"))
        return {"processes": [proc(wchan=SLEEP, run_s=second / 100, switches=int(second)), proc(101, ppid=100)], **taken}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_another_process_that_wakes_now_and_then_doubles_the_time() -> None:
    def tell(second: float):
        return {"processes": [locked(), proc(101, SLEEP, ppid=100, switches=int(second * 2), run_s=second / 200)], **locks_at(second)}

    assert state(scene(tell, seconds=56)) is None
    verdict = state(scene(tell, seconds=70))
    assert (verdict.kind, verdict.confidence) == ("deadlock", "likely")


PRESSED = Seen(PressureSample(cpu=80.0, io=0.0, memory=0.0))


def test_a_host_under_pressure_gets_twice_the_budget_and_the_verdict_says_so() -> None:
    def tell(second: float):
        launcher = proc(50, SLEEP, run_s=second / 100, wait_s=second / 10, switches=int(second))
        return {"processes": [launcher, locked(ppid=50, rank=0)], "pressure": PRESSED, **locks_at(second)}

    assert state(scene(tell, seconds=56)) is None
    assert "cpu 80 %" in state(scene(tell, seconds=130)).reason


def test_pressure_is_no_excuse_for_threads_that_were_not_even_in_the_run_queue() -> None:
    assert state(scene(stands(pressure=PRESSED), seconds=44)).kind == "deadlock"


def test_the_author_can_set_the_budget() -> None:
    assert state(scene(stands(), seconds=16), stall_after_s=15).kind == "deadlock"
    assert state(scene(stands(), seconds=150), stall_after_s=600) is None


@pytest.mark.parametrize(("utilisation", "word"), [(100, "undecided"), (None, "undecided"), (0, "hung")])
def test_a_gpu_that_may_compute_excuses_who_waits_for_it(utilisation: int | None, word: str) -> None:
    """Kernels that were queued may take minutes."""

    def tell(second: float):
        taken = stacks_at(second, stack(100, "synchronize (torch/cuda/__init__.py:985)"))
        gpu = GpuSample(index=0, name="g", used=9, total=99, utilisation=utilisation)
        return {"processes": [proc(wchan="0")], "gpus": Seen((gpu,)), **taken}

    assert state(scene(tell, seconds=200), final=True).verdict == word


def test_silence_of_an_hour_without_thread_times_stays_undecided() -> None:
    story = scene(stands(proc(wchan=FUTEX)), seconds=1200, every=30)
    for index, sample in enumerate(story.samples):
        rows = tuple(msgspec.structs.replace(one, threads=()) for one in sample.processes.value)
        story.samples[index] = msgspec.structs.replace(sample, processes=Seen(rows))
    assert state(story, final=True).verdict == "undecided"


JOINS = "_wait_for_tstate_lock (threading.py:1119)"


@pytest.mark.parametrize("main", [JOINS, "wait (threading.py:320)", "result (concurrent/futures/_base.py:451)", "main (app.py:9)"])
@pytest.mark.parametrize("other", [SLEEP, RECV, LOOP, WAIT4, PIPE_READ, "unix_stream_read_generic", FUTEX, ""])
def test_a_main_thread_that_waits_for_a_thread_which_may_come_back_is_not_hung(main: str, other: str) -> None:
    """It joins a loader that sleeps, a consumer at its broker, a thread that waits for a child; or waits for an event, a signal, a post."""

    def tell(second: float):
        return {"processes": [proc(others=(thread(150, other),))], **stacks_at(second, stack(100, main))}

    assert state(scene(tell, seconds=300), final=True).verdict == "undecided"


def test_threads_that_wait_for_a_lock_whose_holder_sleeps_are_not_hung() -> None:
    def tell(second: float):
        turns = int(second / 25)
        holder = thread(160, SLEEP, run_s=1 + turns / 1000, switches=50 + turns)
        return {"processes": [locked(holder)], **locks_at(second)}

    assert state(scene(tell, seconds=300), final=True).verdict == "undecided"


def test_without_stacks_a_futex_tells_too_little() -> None:
    assert state(scene(stands(proc(others=(thread(150),))), seconds=300), final=True).verdict == "undecided"


def knot_at(second: float, *calls, caught=(), **more):
    """A process whose main thread and thread 150 stand at futexes, by their system calls."""
    return {"processes": [locked(**more)], **calls_at(second, waiting(100, *(calls or (futex(), futex(150))), caught=caught))}


def test_threads_that_only_each_other_could_wake_are_a_deadlock_at_once() -> None:
    """A lost wake-up: the main thread waits for an event that was set too early, its pool for tasks."""
    assert state(scene(knot_at, seconds=10)) is None
    verdict = state(scene(knot_at, seconds=14))
    assert (verdict.kind, verdict.confidence, verdict.culprit.pid) == ("deadlock", "proven", 100)


@pytest.mark.parametrize(
    "tell",
    [
        lambda s: knot_at(s, futex(), futex(150, timed=True)),
        lambda s: knot_at(s, futex(timed=True), futex(150)),
        lambda s: knot_at(s, futex(private=False), futex(150)),
        lambda s: knot_at(s, futex(), CallSample(tid=150)),
        lambda s: knot_at(s, futex()),
        lambda s: knot_at(s, caught=(10,)),
        lambda s: knot_at(s, caught=(15,)),
        lambda s: knot_at(s, caught=None),
        lambda s: {**knot_at(s), "processes": [locked(thread(160, SLEEP))]},
        lambda s: {**knot_at(s), "processes": [locked(thread(160, SLEEP, switches=int(s)))]},
        lambda s: {**knot_at(s), "processes": [locked(switches=int(s / 7))]},
        lambda s: {**knot_at(s), "processes": [locked(switches=0 if s < 5 else 1)]},
        lambda s: {**knot_at(s), "sockets": Seen((connection(state="LISTEN", received=0),))},
    ],
    ids=["a timed wait in it", "a timed wait", "a shared futex", "an unknown call", "a thread not read", "a signal that is handled",
         "it may be told to stop", "handlers not known", "a thread that sleeps", "a thread that beats", "it went on", "it moved since", "it listens"],
)  # fmt: skip
def test_whoever_could_be_woken_by_anything_else_is_in_no_knot(tell) -> None:
    seconds = 13 if tell(5)["processes"][0].threads[0].switches == 1 else 200
    assert state(scene(tell, seconds=seconds), final=True).verdict == "undecided"


def test_a_parent_whose_threads_beat_is_hung_with_the_child_that_it_waits_for() -> None:
    """A lock that was held at the fork; a thread of the parent says that it waits. A thread that may do more, or an alarm, may end the child."""

    def tell(second: float, every: float = 2.0, loop: str = "closed", alarm: bool | None = False):
        parent = proc(wchan=WAIT4, others=(thread(150, SLEEP, switches=int(second / every)),))
        call = CallSample(tid=100, call="child", child=101)
        waits = calls_at(second, waiting(100, call, CallSample(tid=150)), waiting(101, alarm=alarm))
        return {"processes": [parent, proc(101, ppid=100)], **waits, **stacks_at(second, beats(150, loop=loop))}

    verdict = state(scene(tell, seconds=40))
    assert (verdict.kind, verdict.culprit.pid) == ("deadlock", 101)
    assert state(scene(lambda second: tell(second, loop="open"), seconds=200), final=True).verdict == "undecided"
    assert state(scene(lambda second: tell(second, every=150.0), seconds=200), final=True).verdict == "undecided"  # it went round but once
    for alarm in (True, None):
        assert state(scene(lambda second: tell(second, alarm=alarm), seconds=200), final=True).verdict == "undecided"  # noqa: B023


@pytest.mark.parametrize(("loop", "kind"), [("closed", "deadlock"), ("open", None)])
def test_a_thread_that_only_logs_frees_no_lock_of_a_file(loop: str, kind: str | None) -> None:
    lock = LockSample(path="/m/lock", kind="flock", waiters=(100,), holder=101, holder_known=True, opened_by=(100, 101), opened_known=True)

    def tell(second: float):
        main = proc(wchan="locks_lock_inode_wait", others=(thread(150, SLEEP, switches=int(second / 2)),))
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="lock"), CallSample(tid=150)), waiting(101))
        return {"processes": [main, proc(101, ppid=100)], "locks": Seen((lock,)), **waits, **stacks_at(second, beats(150, loop=loop))}

    assert state(scene(tell, seconds=200), final=True).kind == kind


def test_a_thread_that_only_logs_may_wake_whoever_waits_beside_it_for_an_event() -> None:
    """By a handler of its log, which was set up elsewhere and keeps so many lines."""

    def tell(second: float, beating: bool):
        others = (thread(150, SLEEP, switches=int(second / 2)),) if beating else ()
        calls = (futex(), CallSample(tid=150)) if beating else (futex(),)
        return {
            "processes": [proc(others=others)],
            **calls_at(second, waiting(100, *calls)),
            **stacks_at(second, *([beats(150)] * beating)),
        }

    assert state(scene(lambda second: tell(second, True), seconds=200), final=True).verdict == "undecided"
    assert state(scene(lambda second: tell(second, False), seconds=200), final=True).kind == "deadlock"


def test_a_child_that_can_go_on_excuses_the_parent_that_waits_for_it() -> None:
    def tell(second: float):
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="child")), waiting(101, futex(101, timed=True)))
        return {"processes": [proc(wchan=WAIT4), proc(101, ppid=100)], **waits}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


def test_two_threads_at_one_lock_whose_holder_beats_are_no_circle() -> None:
    """The holder polls for something far away."""

    def tell(second: float):
        one = calls_at(second, waiting(100, futex(at=7), futex(150, at=7), CallSample(tid=160)))
        return {"processes": [locked(thread(160, SLEEP, switches=int(second)))], **locks_at(second), **one}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


@pytest.mark.parametrize(
    ("changed", "waits"),
    [({"interrupts": True}, {}), ({}, {"alarm": True})],
    ids=["it goes on after SIGINT", "a timer of its own sends it a signal"],
)
def test_what_is_made_to_be_woken_by_a_signal_is_in_no_knot(changed, waits) -> None:
    def tell(second: float):
        main = msgspec.structs.replace(stack(100, "wait (threading.py:327)"), **changed)
        return {"processes": [proc()], **calls_at(second, waiting(100, **waits)), **stacks_at(second, main, first=2.0, again=12.0)}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"
    assert (
        state(scene(lambda second: {**tell(second), **calls_at(second, waiting(100)), "stacks": Seen(())}, seconds=60)).kind == "deadlock"
    )


def test_a_process_that_its_control_group_has_frozen_may_be_let_go_on() -> None:
    frozen = [proc(others=(thread(150, "__refrigerator"),)), proc(101, ppid=100)]
    story = scene(lambda second: {"processes": frozen, **calls_at(second, waiting(100, futex(), futex(150)), waiting(101))}, seconds=200)
    verdict = state(story, final=True)
    assert verdict.verdict == "undecided" and "frozen by its control group" in verdict.reason


@pytest.mark.parametrize(("known", "kind"), [(True, "deadlock"), (False, None)])
def test_two_processes_that_write_into_each_others_full_pipes_are_hung(known: bool, kind: str | None) -> None:
    def tell(second: float):
        ours, childs = (CallSample(tid=tid, call="write", peers=(other,), peers_known=known) for tid, other in ((100, 101), (101, 100)))
        return {
            "processes": [proc(wchan=PIPE_WRITE), proc(101, PIPE_WRITE, ppid=100)],
            **calls_at(second, waiting(100, ours), waiting(101, childs)),
        }

    assert state(scene(tell, seconds=60), final=True).kind == kind


def test_a_poll_of_pipes_whose_writers_stand_is_one_more_wait_of_a_knot() -> None:
    def tell(second: float, known: bool):
        poll = CallSample(tid=101, call="poll", peers=(100,), peers_known=known)
        waits = calls_at(second, waiting(100, CallSample(tid=100, call="child", child=101)), waiting(101, poll))
        return {"processes": [proc(wchan=WAIT4), proc(101, LOOP, ppid=100)], **waits}

    assert state(scene(lambda second: tell(second, True), seconds=60)).verdict == "hung"
    assert state(scene(lambda second: tell(second, False), seconds=200), final=True).verdict == "undecided"
