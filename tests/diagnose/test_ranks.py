"""rank_missing, rank_desync: what the ranks say together, and who is named."""

from __future__ import annotations

import random
from types import MappingProxyType

import msgspec
import pytest

from runbook.diagnose.ranks import rank_desync
from runbook.model.sample import Blind, Seen
from runbook.model.waits import CallSample, CollectiveSample, StackSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    SLEEP,
    WAIT4,
    beats,
    calls_at,
    futex,
    pipe,
    proc,
    reads,
    scene,
    stack,
    stacks_at,
    thread,
    waiting,
)
from tests.diagnose.stories import state

REDUCE = (
    "all_reduce (torch/distributed/distributed_c10d.py:2501)",
    "wrapper (torch/distributed/c10d_logger.py:81)",
    "forward (model.py:7)",
)
BROADCAST = (
    "broadcast (torch/distributed/distributed_c10d.py:2150)",
    "wrapper (torch/distributed/c10d_logger.py:81)",
    "forward (model.py:9)",
)
USER = ("wait (threading.py:327)", "next_batch (data.py:40)", "forward (model.py:7)")


def rank(number: int, **more):
    return proc(101 + number, more.pop("wchan", FUTEX), ppid=100, rank=number, title=f"sglang::scheduler_TP{number}", **more)


def parent(second: float = 0.0, **more):
    return proc(wchan=WAIT4, **more)


def group(second: float, places: dict[int, tuple[str, ...]], bar: str = "step 7/100 done"):
    taken = stacks_at(second, *(stack(101 + number, *frames, rank=number) for number, frames in places.items()))
    waits = calls_at(second, *(waiting(101 + number) for number in places))
    return {"processes": [parent(), *(rank(number) for number in places)], "log": f"{bar}\n" if second == 0 else "", **taken, **waits}


def test_a_rank_in_another_collective_is_named() -> None:
    places = {0: REDUCE, 1: REDUCE, 2: BROADCAST, 3: REDUCE}
    verdict = state(scene(lambda second: group(second, places), seconds=60))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.rank) == ("hung", "rank_desync", "rank_desync", 2)
    assert "ranks 0, 1, 3 in all_reduce; rank 2 in broadcast" in verdict.reason


def test_a_rank_outside_the_collective_is_named() -> None:
    verdict = state(scene(lambda second: group(second, {0: REDUCE, 1: USER, 2: REDUCE, 3: REDUCE}), seconds=60))
    assert (verdict.kind, verdict.culprit.rank) == ("rank_desync", 1)


def test_where_it_is_even_nobody_is_named() -> None:
    verdict = state(scene(lambda second: group(second, {0: REDUCE, 1: BROADCAST, 2: REDUCE, 3: BROADCAST}), seconds=60))
    assert (verdict.kind, verdict.culprit) == ("rank_desync", None)


def test_without_a_counter_that_stands_it_is_a_deadlock_that_names_the_odd_rank() -> None:
    verdict = state(scene(lambda second: group(second, {0: REDUCE, 1: REDUCE, 2: USER, 3: REDUCE}, bar=""), seconds=60))
    assert (verdict.kind, verdict.culprit.rank) == ("deadlock", 2)


def test_all_ranks_in_one_collective_are_a_deadlock() -> None:
    verdict = state(scene(lambda second: group(second, dict.fromkeys(range(4), REDUCE)), seconds=60))
    assert verdict.kind == "deadlock"


@pytest.mark.parametrize("works", ["computes", "reads", "sleeps"])
def test_a_rank_that_does_something_while_the_others_wait_is_slow(works: str) -> None:
    def tell(second: float):
        odd = {
            "computes": lambda: rank(3, run_s=second * 0.5, wchan=""),
            "reads": lambda: rank(3, read_so_far=int(second * 300_000)),
            "sleeps": lambda: rank(3, wchan=SLEEP),
        }[works]()
        told = group(second, {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: USER})
        return {**told, "processes": [*told["processes"][:-1], odd]}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


@pytest.mark.parametrize("waits", ["timed", "shared", "handled", "in a loop", "for a thread that runs Python", "unread"])
@pytest.mark.parametrize("bar", ["", "step 7/100 done"])
def test_a_rank_that_may_still_come_to_the_collective_excuses_the_others(waits: str, bar: str) -> None:
    """It waits for a request, for a thread that brings one, for its time."""

    def tell(second: float):
        told = group(second, {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: USER}, bar)
        call = futex(104, timed=waits == "timed", private=waits != "shared") if waits != "in a loop" else CallSample(tid=104)
        others = (thread(190, LOOP),) if waits == "for a thread that runs Python" else ()
        odd = rank(3, wchan=LOOP if waits == "in a loop" else FUTEX, others=others)
        if "stacks" in told and others:
            told["stacks"] = Seen(
                (*told["stacks"].value, StackSample(pid=104, tid=190, rank=3, source="py-spy", frames=("poll (zmq/p.py:3)",)))
            )
        told["processes"] = [*told["processes"][:-1], odd]
        if "calls" in told:
            told["calls"] = Seen((*told["calls"].value[:-1], waiting(104, call, caught=(10,) if waits == "handled" else ())))
        if waits == "unread":
            told.pop("calls", None)
        return told

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


CARRIES = CallSample(tid=191, carries="gloo_tcp_loop", peers=(101, 102, 103))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (CARRIES, "rank_desync"),
        (futex(191), "rank_desync"),
        (CallSample(tid=191, carries="NCCL Service  0"), "rank_desync"),
        (CallSample(tid=191), None),
        (msgspec.structs.replace(CARRIES, peers=(101, 900)), None),
        (futex(191, timed=True), None),
        (reads(191, 900), None),
    ],
    ids=["carries", "waits for its process", "of the other library", "unknown", "hears somebody outside", "timed", "reads"],
)
def test_a_native_thread_beside_the_rank_outside_must_be_one_that_only_carries(call: CallSample, kind: str | None) -> None:
    """A client of a store or a cache waits in a loop as well, for an answer or a time, and wakes the rank then."""

    def tell(second: float):
        told = group(second, {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: USER})
        wakes = int(second) if call.carries else 5
        told["processes"] = [*told["processes"][:-1], rank(3, others=(thread(191, LOOP, switches=wakes),))]
        if "calls" in told:
            told["calls"] = Seen((*told["calls"].value[:-1], waiting(104, futex(104), call)))
        return told

    verdict = state(scene(tell, seconds=150), final=True)
    assert verdict.kind == kind and (kind or verdict.verdict == "undecided")


def named(process, **more):
    return msgspec.structs.replace(process, title="python", **more)


@pytest.mark.parametrize(("here", "world"), [((0,), 2), ((1,), None), ((0,), None), ((0, 1), 4), ((0, 1, 3), None)])
@pytest.mark.parametrize("works", ["waits", "spins"])
def test_ranks_in_a_collective_may_wait_for_one_that_is_not_seen(here: tuple[int, ...], world: int | None, works: str) -> None:
    """In another shell or on another host it may be on its way."""

    def tell(second: float):
        told = group(second, dict.fromkeys(here, REDUCE))
        told.pop("calls", None)
        more = {"run_s": second, "wchan": ""} if works == "spins" else {}
        mine = [named(rank(number, **more), world=world, ppid=1) for number in here]
        return {**told, "processes": mine}

    verdict = state(scene(tell, seconds=150), final=True)
    assert verdict.verdict == "undecided" and "may still come" in verdict.reason
    assert any("--match" in text and "other host" in text for text in verdict.next)


def test_a_rank_that_is_not_seen_is_named() -> None:
    def tell(second: float):
        told = group(second, {0: REDUCE, 1: BROADCAST})
        return {**told, "processes": [parent(), *(named(rank(number), world=3) for number in (0, 1))]}

    verdict = state(scene(tell, seconds=150), final=True)
    assert verdict.verdict == "undecided" and "rank 2 of 3 not seen here" in verdict.reason
    assert state(scene(tell, seconds=60), ranks=3).kind == "rank_missing"


def test_ranks_that_are_all_seen_are_still_convicted() -> None:
    def tell(second: float):
        told = group(second, {0: REDUCE, 1: BROADCAST})
        return {**told, "processes": [parent(), *(named(rank(number), world=2) for number in (0, 1))]}

    assert state(scene(tell, seconds=60)).kind == "rank_desync"


def test_numbers_that_stand_apart_may_wait_for_a_rank_that_is_not_seen() -> None:
    def tell(second: float):
        told = numbers(second, {0: 51, 1: 50})
        return {**told, "processes": [parent(), *(named(rank(number), world=3) for number in (0, 1))]}

    assert state(scene(tell, seconds=24)) is None


def numbers(second: float, sequence: dict[int, int], step: int = 0, places=MappingProxyType({})):
    asked = {12: 1, 22: 2}.get(int(second))
    found = tuple(
        CollectiveSample(
            group="tp", rank=number, source="ras", sequence=value + (step if asked == 2 else 0), operation="AllReduce", look=asked
        )
        for number, value in sequence.items()
        if asked
    )
    told = group(second, {number: places.get(number, REDUCE) for number in sequence}, bar="")
    return {**told, **({"collectives": Seen(found)} if found else {})}


def test_sequence_numbers_that_stand_apart_are_decisive() -> None:
    verdict = state(scene(lambda second: numbers(second, {0: 51, 1: 51, 2: 50, 3: 51}), seconds=24))
    assert (verdict.kind, verdict.culprit.rank) == ("rank_desync", 2)


def test_a_rank_with_a_lower_number_that_waits_with_a_limit_outside_will_come_to_it() -> None:
    def tell(second: float):
        told = numbers(second, {0: 51, 1: 51, 2: 50, 3: 51}, **{"places": {2: USER}})
        timed = calls_at(second, *(waiting(101 + number, futex(101 + number, timed=number == 2)) for number in range(4)))
        return {**told, **timed}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_sequence_numbers_that_rise_are_progress() -> None:
    story = scene(lambda second: numbers(second, {0: 51, 1: 51, 2: 50, 3: 51}, step=1), seconds=24)
    assert state(story, final=True).verdict == "slow"


def test_fewer_ranks_than_there_should_be_name_the_one_that_never_came() -> None:
    story = scene(lambda second: {"processes": [parent(), rank(0), rank(1), rank(3)]}, seconds=16)
    assert state(story) is None
    verdict = state(story, ranks=4)
    assert (verdict.kind, verdict.rule, verdict.culprit.rank) == ("rank_missing", "rank_missing", 2)


@pytest.mark.parametrize("log", ["", "next rank when its GPU is free\n"])
def test_a_launcher_that_polls_for_what_the_last_rank_needs_may_start_it_yet(log: str) -> None:
    def tell(second: float):
        launcher = proc(wchan=SLEEP, run_s=second / 200, switches=int(second * 2))
        return {"processes": [launcher, rank(0), rank(1)], "log": log}

    assert state(scene(tell, seconds=100), final=True, ranks=3).verdict == "undecided"


@pytest.mark.parametrize(("loop", "kind"), [("closed", "rank_missing"), ("open", None), ("", None)])
def test_a_thread_of_the_launcher_that_by_its_source_may_do_more_may_start_the_last_rank(loop: str, kind: str | None) -> None:
    def tell(second: float):
        launcher = proc(wchan=FUTEX, others=(thread(150, SLEEP, switches=int(second)),))
        waits = calls_at(second, waiting(100, futex(), CallSample(tid=150)))
        looks = stacks_at(second, stack(100, "wait (threading.py:327)"), beats(150, loop=loop))
        return {"processes": [launcher, rank(0), rank(1)], **waits, **looks}

    verdict = state(scene(tell, seconds=40), final=True, ranks=3)
    assert verdict.kind == kind and (kind is not None or verdict.verdict == "undecided")


def test_a_launcher_that_says_that_it_waits_for_its_ranks_does_not() -> None:
    def tell(second: float):
        launcher = proc(wchan=SLEEP, run_s=second / 200, switches=int(second * 2))
        return {"processes": [launcher, rank(0), rank(1)], "log": f"Waiting for 3 core engine procs to start ({int(second)} s)\n"}

    assert state(scene(tell, seconds=24), ranks=3).kind == "rank_missing"


@pytest.mark.parametrize("front", [SLEEP, LOOP, FUTEX])
def test_ranks_in_a_collective_may_wait_for_the_next_request_of_their_front(front: str) -> None:
    """It is a member of their group, or leads a rank to it; with a request open it would have brought it."""

    def tell(second: float):
        told = group(second, dict.fromkeys(range(4), BROADCAST), bar="")
        told.pop("calls", None)
        main = proc(wchan=front, switches=int(second * 2) if front == SLEEP else 50)
        return {**told, "processes": [main, *told["processes"][1:]]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"
    assert state(scene(tell, seconds=150), in_flight=1).kind == "deadlock"


@pytest.mark.parametrize(
    ("peers", "limit", "verdict"),
    [((101, 102), False, "hung"), ((101, 7), False, "undecided"), ((101, 102), True, "undecided")],
    ids=["its ranks", "another as well", "only so long"],
)
def test_a_launcher_that_waits_for_messages_of_its_ranks_alone_brings_them_nothing(
    peers: tuple[int, ...], limit: bool, verdict: str
) -> None:
    def tell(second: float):
        places = {0: REDUCE, 1: REDUCE, 2: BROADCAST, 3: REDUCE}
        told = group(second, places, bar="")
        inlet = pipe(5, "read", peers=peers)
        main = proc(wchan=LOOP, pipes=Seen((inlet,)))
        if "stacks" in told:
            waits = stack(100, "select (selectors.py:415)", "wait (multiprocessing/connection.py:947)", "await_ready (engine.py:69)")
            told["stacks"] = Seen((*told["stacks"].value, msgspec.structs.replace(waits, look=told["stacks"].value[0].look)))
        if "calls" in told:
            hears = CallSample(tid=100, call="poll", peers=peers, peers_known=True, timed=limit)
            told["calls"] = Seen((waiting(100, hears),))
        return {**told, "processes": [main, *told["processes"][1:]]}

    assert state(scene(tell, seconds=100), final=True).verdict == verdict


def test_a_rank_that_is_still_being_started_is_not_missing() -> None:
    def tell(second: float):
        imports = proc(150, "", ppid=100, run_s=second * 0.1, switches=int(second))
        return {"processes": [parent(), rank(0), rank(1), imports]}

    assert state(scene(tell, seconds=40), ranks=3) is None


def test_a_launcher_that_still_reads_before_it_starts_the_last_rank_is_progress() -> None:
    story = scene(lambda second: {"processes": [proc(read_so_far=int(second * 200_000)), rank(0), rank(1)]}, seconds=40)
    assert state(story, ranks=3) is None


def test_a_launcher_whose_bytes_cannot_be_seen_may_still_read() -> None:
    blind = proc(wchan=SLEEP, switches=1, io=Blind("not permitted"))
    assert state(scene(lambda second: {"processes": [blind, rank(0), rank(1)]}, seconds=60), ranks=3) is None


def test_a_child_of_a_rank_inherits_its_number_and_is_not_the_rank() -> None:
    def tell(second: float):
        helper = proc(140, "", ppid=101, rank=0, title="python", state="Z" if second > 4 else "S", exit_code=1 if second > 4 else None)
        return {"processes": [proc(read_so_far=int(second * 300_000)), rank(0), rank(1), helper]}

    assert state(scene(tell, seconds=30)) is None


@pytest.mark.parametrize("world", [4, 8])
def test_of_seeded_groups_the_named_rank_is_the_right_one(world: int) -> None:
    """At least 95 %, otherwise nobody: here all of those that are named."""
    rng = random.Random(world)
    named = wrong = 0
    for _ in range(10):
        odd = rng.randrange(world)
        places = {number: REDUCE for number in range(world)} | {odd: rng.choice([BROADCAST, USER])}
        if rng.random() < 0.3:
            places[(odd + 1) % world] = rng.choice([BROADCAST, USER])
        verdict = state(scene(lambda second, places=places: group(second, places), seconds=44))
        assert verdict.kind == rank_desync.__name__
        named += verdict.culprit is not None
        wrong += verdict.culprit is not None and verdict.culprit.rank != odd and places[verdict.culprit.rank] is REDUCE
    assert named >= 5 and wrong == 0
