"""spin and livelock: it runs, and nothing comes of it; beside them those that run and get somewhere."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import EngineSample, PipeSample, Seen
from runbook.model.waits import CallSample, SharedSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    SLEEP,
    beats,
    calls_at,
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
from tests.diagnose.stories import answer, listener, state


def burns(second: float, pid: int = 100, **more):
    return proc(pid, "", state="R", run_s=second * 0.3, wait_s=second * 0.65, **more)


def four_looks(second: float, *frames: str, pids: tuple[int, ...] = (100,), loop: str = "looks", beside=(), waits=(), **more):
    """Its stack, whose loop by its source looks at a value in memory, and its system calls: it is in none, and shares no memory."""
    taken = [*(msgspec.structs.replace(stack(pid, *frames), loop=loop) for pid in pids), *beside]
    asked = calls_at(second, waiting(100, CallSample(tid=100), **more), *waits, first=6.0)
    return {**stacks_at(second, *taken), **stacks_at(second, *taken, first=60, again=70), **asked}


def spins(frame: str = "wait_for_completion (engine.py:9)", **more):
    return lambda second: {"processes": [burns(second)], **four_looks(second, frame, **more)}


def test_a_core_spent_at_one_place_that_waits_is_a_spin_after_four_looks() -> None:
    assert state(scene(spins(), seconds=68)) is None
    verdict = state(scene(spins(), seconds=76))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "spin", "spin")


def test_a_spin_on_a_busy_host_wants_a_core_and_hardly_gets_one() -> None:
    def tell(second: float):
        return {
            "processes": [proc(100, "", state="R", run_s=second * 0.05, wait_s=second * 0.93)],
            **four_looks(second, "spin_until (e.py:1)"),
        }

    assert state(scene(tell, seconds=76)).kind == "spin"


@pytest.mark.parametrize("frame", ["svd (numpy/linalg.py:1681)", "match (re.py:190)", "<genexpr> (parse.py:3)", "join (posixpath.py:71)"])
def test_one_long_native_call_at_one_place_is_not_called_a_spin(frame: str) -> None:
    assert state(scene(spins(frame, loop="none"), seconds=150), final=True).verdict == "undecided"


def test_a_thread_that_takes_and_gives_back_memory_computes() -> None:
    def tell(second: float):
        return {"processes": [burns(second, faults=int(second * 500))], **four_looks(second, "wait_for_weights (e.py:1)")}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def test_two_stacks_that_differ_show_that_it_moves() -> None:
    def tell(second: float):
        frame = "poll_parse (e.py:1)" if second < 20 else "poll_pack (e.py:9)"
        return {"processes": [burns(second)], **stacks_at(second, stack(100, frame), first=14, again=24)}

    verdict = state(scene(tell, seconds=150), final=True)
    assert verdict.verdict != "hung"


def test_a_consumer_that_spins_beside_a_producer_that_computes_is_no_hang() -> None:
    """Both may bear a name that waits."""

    def tell(second: float):
        both = [burns(second), burns(second, 101, ppid=100)]
        return {"processes": both, **four_looks(second, "poll_completion (e.py:1)", pids=(100, 101))}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def test_a_consumer_that_spins_beside_a_producer_that_hangs_is() -> None:
    def tell(second: float):
        ring = SharedSample(name="/dev/zero (deleted)", pids=(101,), known=True)
        seen = four_looks(second, "poll_completion (e.py:1)", shared=(ring,), waits=[waiting(101)])
        return {"processes": [burns(second), proc(101, FUTEX, ppid=100)], **seen}

    assert state(scene(tell, seconds=80)).kind == "spin"


@pytest.mark.parametrize(
    "seen",
    [
        {"loop": "open"},
        {"loop": ""},
        {"loop": "none"},
        {"caught": (10,)},
        {"shared": None},
        {"shared": (SharedSample(name="/tmp/flag"),)},
        {"shared": (SharedSample(name="/dev/zero (deleted)", pids=(900,), known=True),)},
        {"shared": (SharedSample(name="/dev/nvidia0"),)},
    ],
    ids=[
        "asks for the time",
        "source not read",
        "native code",
        "a signal",
        "maps not read",
        "a file that others may write",
        "a stranger has it",
        "a GPU",
    ],
)
def test_a_flag_that_something_else_may_still_set_is_no_spin(seen) -> None:
    verdict = state(scene(spins(**seen), seconds=150), final=True)
    assert verdict.verdict == "undecided" and "open: " in verdict.reason


@pytest.mark.parametrize(("loop", "verdict"), [("closed", "hung"), ("open", "undecided"), ("", "undecided")])
def test_beside_a_thread_that_wakes_only_its_source_tells_whether_it_may_set_the_flag(loop: str, verdict: str) -> None:
    def tell(second: float):
        main = burns(second, others=(thread(201, SLEEP, switches=int(second)),))
        return {"processes": [main], **four_looks(second, "spin_until (e.py:1)", beside=[beats(201, loop=loop)])}

    assert state(scene(tell, seconds=150), final=True).verdict == verdict


def test_a_place_that_bears_no_waiting_name_is_one_by_its_source() -> None:
    assert state(scene(spins("step (engine.py:9)"), seconds=76)).kind == "spin"
    assert state(scene(spins("step (engine.py:9)", loop="none"), seconds=150), final=True).verdict == "undecided"


def repeats(second: float, count: str = "finished 7/64", loop: str = "closed"):
    main = msgspec.structs.replace(stack(100, "step (engine.py:9)"), loop=loop)
    words = ["aras", "moti", "lekus", "dorpre"]
    return {
        "processes": [proc(wchan=SLEEP, run_s=second / 50, switches=int(second * 4))],
        "log": f"{words[int(second) % 4]}{'xyzuvw'[int(second) % 6]} request {int(second) * 7919:x}: {count}\n",
        **stacks_at(second, main),
        **calls_at(second, waiting(100, CallSample(tid=100))),
    }


def test_lines_that_are_all_new_while_their_only_counter_stands_are_a_livelock() -> None:
    assert state(scene(repeats, seconds=50)) is None
    verdict = state(scene(repeats, seconds=140))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "livelock", "livelock")
    assert "7/64" in verdict.reason


@pytest.mark.parametrize("loop", ["open", "looks", "none", ""])
def test_a_loop_that_may_look_at_what_others_write_is_no_livelock(loop: str) -> None:
    """A loader at shard 3 of 12 that polls a shared folder for the next one, and logs what it always logs."""
    verdict = state(scene(lambda second: repeats(second, loop=loop), seconds=200), final=True)
    assert verdict.verdict == "undecided" and "its source" in verdict.reason


def test_a_counter_that_goes_towards_its_total_is_progress() -> None:
    story = scene(lambda second: repeats(second, f"finished {int(second / 9)}/64"), seconds=200)
    assert state(story, final=True).verdict == "slow"


@pytest.mark.parametrize("line", ["retry {n}: store not ready after {n}.5s", "tick {n}", "scheduler step {n}", "lease 4f{n}aa-9 renewed"])
def test_a_bare_counter_alone_proves_neither_life_nor_livelock(line: str) -> None:
    def tell(second: float):
        return {**repeats(second), "log": line.format(n=int(second)) + "\n"}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_heartbeats_of_a_parent_whose_child_works_are_no_livelock() -> None:
    def tell(second: float):
        told = repeats(second)
        return {**told, "processes": [*told["processes"], proc(101, "", ppid=100, run_s=second * 0.4)]}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def tokens(second: float, grows: bool, running: int = 2):
    core = [proc(wchan="ep_poll", run_s=second / 50, switches=int(second * 4))]
    engine = Seen(EngineSample(tokens=int(second * 90) if grows else 900, steps=None, running=running, waiting=0))
    return {"processes": core, "engine": engine, "check": answer(), "listeners": listener()}


def test_tokens_that_stand_while_requests_run_are_a_hang_though_the_front_answers() -> None:
    verdict = state(scene(lambda second: {**tokens(second, False), "log": "Running: 2 reqs\n"}, seconds=160))
    assert (verdict.verdict, verdict.kind) == ("hung", "livelock")


def test_tokens_that_come_and_an_idle_engine_are_none() -> None:
    assert state(scene(lambda second: tokens(second, True), seconds=160)).verdict == "passed"
    assert state(scene(lambda second: tokens(second, False, running=0), seconds=160)).verdict == "passed"


def test_a_gauge_that_rises_and_falls_is_no_bar() -> None:
    def tell(second: float):
        return {"processes": [locked()], **locks_at(second), "log": f"[stats] running {int(second) % 5} kv {int(second * 37) % 100}.00%\n"}

    assert state(scene(tell, seconds=90)).kind == "deadlock"


def test_a_second_bar_after_a_full_one_is_progress() -> None:
    """The draft model's shards after the target's, under the same words."""
    done = lambda second: int(second / 2) % 11  # noqa: E731
    story = scene(lambda second: {"processes": [proc()], "log": f"\rshards: {done(second) * 10}% {done(second)}/10\n"}, seconds=42)
    assert any(motion.signal == "bar" and motion.t > story.samples[0].t + 24 for motion in _motions(story))


def _motions(story):
    from runbook.diagnose.view import View
    from runbook.model.question import Question

    return View(story.samples, story.profile, Question(about="state", since=0, box_s=1), story.samples[-1].t).motions


def test_a_stand_still_alone_is_no_livelock() -> None:
    assert state(scene(stands(proc(wchan=SLEEP, switches=1)), seconds=200), final=True).verdict == "undecided"


def launched(second: float, *, at_stdout: bool = False, known: bool = True, timed: bool = False):
    """A launcher that polls its rank, which goes round."""
    told = repeats(second)
    line = PipeSample(fd=1, end="write", name="pipe:[7]", peers=(50,) if at_stdout else (), peers_known=True)
    rank = msgspec.structs.replace(told["processes"][0], ppid=50, pipes=Seen((line,)))
    poll = CallSample(tid=50, call="poll", peers=(100,), peers_known=known, timed=timed)
    waits = calls_at(second, waiting(50, poll, caught=(3, 15)), waiting(100, CallSample(tid=100)))
    return {**told, "processes": [proc(50, LOOP), rank], **waits}


def test_a_launcher_that_polls_for_what_a_rank_in_a_circle_never_says_does_not_help() -> None:
    assert state(scene(launched, seconds=140)).kind == "livelock"


@pytest.mark.parametrize("more", [{"at_stdout": True}, {"known": False}, {"timed": True}], ids=["reads its lines", "who else", "a limit"])
def test_a_launcher_that_may_hear_more_than_its_rank_says_may_act(more) -> None:
    assert state(scene(lambda second: launched(second, **more), seconds=200), final=True).verdict == "undecided"


def test_a_thread_that_sleeps_may_bring_the_tokens() -> None:
    def tell(second: float):
        asleep = calls_at(second, waiting(100, CallSample(tid=100), CallSample(tid=150, call="futex", timed=True)))
        core = [proc(wchan="ep_poll", run_s=second / 50, switches=int(second * 4), others=(thread(150),))]
        return {**tokens(second, False), "processes": core, **asleep, "log": "Running: 2 reqs\n"}

    assert state(scene(tell, seconds=200), final=True).verdict != "hung"
