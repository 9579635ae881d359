"""blocked_peer: a partner that is dead, stopped, silent or out of reach; beside it partners that are merely slow."""

from __future__ import annotations

import msgspec
import pytest

from runbook.model.sample import Blind, Seen
from runbook.model.waits import CallSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    PIPE_READ,
    RECV,
    SLEEP,
    calls_at,
    connection,
    futex,
    pipe,
    proc,
    reads,
    scene,
    stands,
    waiting,
)
from tests.diagnose.stories import state


def with_peer(peer, *waits):
    reader = proc(wchan=RECV)
    known = {"sockets": Seen((connection(peer_pid=peer.pid),)), "peers": Seen((peer,))}
    return lambda second: {"processes": [reader], **known, **calls_at(second, *waits, first=10.0)}


@pytest.mark.parametrize("wchan", [SLEEP, LOOP, FUTEX, PIPE_READ, RECV])
@pytest.mark.parametrize("call", [None, CallSample(tid=900), futex(900, timed=True), futex(900, private=False), reads(901, tid=900)])
def test_a_partner_that_comes_back_by_itself_or_for_somebody_else_is_not_hung(wchan: str, call) -> None:
    waits = (waiting(100, reads(900)), waiting(900, call)) if call is not None else ()
    assert state(scene(with_peer(proc(900, wchan), *waits), seconds=200), final=True).verdict == "undecided"


def test_a_partner_outside_the_tree_that_stands_still_too_is_named() -> None:
    peer = proc(900, FUTEX, title="weights-cache")
    assert state(scene(with_peer(peer), seconds=62)) is None
    verdict = state(scene(with_peer(peer, waiting(100, reads(900)), waiting(900)), seconds=26))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.pid) == ("hung", "blocked_peer", "blocked_peer", 900)


def test_a_partner_that_works_excuses_who_waits_for_it() -> None:
    def tell(second: float):
        peer = proc(900, "", run_s=second * 0.5, state="R")
        return {"processes": [proc(wchan=RECV)], "sockets": Seen((connection(peer_pid=900),)), "peers": Seen((peer,))}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_slow_download_moves_only_its_byte_counters() -> None:
    def tell(second: float):
        peer = proc(900, SLEEP, run_s=second / 50, switches=int(second))
        return {
            "processes": [proc(wchan=RECV, run_s=second / 100, switches=int(second))],
            "sockets": Seen((connection(peer_pid=900, received=int(second * 200_000)),)),
            "peers": Seen((peer,)),
        }

    verdict = state(scene(tell, seconds=150), final=True)
    assert verdict.verdict == "slow" and "network" in verdict.progress


def test_a_stopped_partner_is_decisive() -> None:
    verdict = state(scene(with_peer(proc(900, state="T"), waiting(100, reads(900))), seconds=26))
    assert (verdict.kind, verdict.culprit.pid, verdict.culprit.note.split(",")[0]) == ("blocked_peer", 900, "stopped")


@pytest.mark.parametrize("peer", [FUTEX, "T"])
@pytest.mark.parametrize("doubt", ["", "whether its receive has a limit of time cannot be asked"])
def test_a_receive_with_a_limit_of_time_comes_back_whatever_its_partner_does(peer: str, doubt: str) -> None:
    """SO_RCVTIMEO of its socket: after that it asks again."""
    partner = proc(900, FUTEX, state="T") if peer == "T" else proc(900, peer)
    call = CallSample(tid=100, call="read", peers=(900,), peers_known=True, timed=True, doubt=doubt)
    verdict = state(scene(with_peer(partner, waiting(100, call), waiting(900)), seconds=200), final=True)
    assert verdict.verdict == "undecided" and doubt in verdict.reason


@pytest.mark.parametrize("alarm", [True, None])
def test_a_partner_that_a_timer_of_its_own_may_end_closes_the_connection(alarm: bool | None) -> None:
    waits = (waiting(100, reads(900)), waiting(900, alarm=alarm))
    verdict = state(scene(with_peer(proc(900, FUTEX), *waits), seconds=200), final=True)
    assert verdict.verdict == "undecided" and "a timer of its own may end pid 900" in verdict.reason


def test_a_partner_that_was_stopped_for_a_moment_is_not() -> None:
    def tell(second: float):
        peer = proc(900, state="T" if second < 11 else "S", run_s=second, switches=int(second))
        return {"processes": [proc(wchan=RECV)], "sockets": Seen((connection(peer_pid=900),)), "peers": Seen((peer,))}

    assert state(scene(tell, seconds=22)) is None


def test_a_writer_that_is_stopped_and_let_go_on_in_turn_is_not() -> None:
    def tell(second: float):
        writer = proc(101, ppid=100, state="T", run_s=second / 20, switches=int(second))
        return {"processes": [proc(wchan=PIPE_READ, pipes=Seen((pipe(5, "read", peers=(101,)),))), writer]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_partner_that_cannot_be_seen_leaves_it_undecided() -> None:
    assert state(scene(stands(proc(wchan=RECV), sockets=Seen((connection(),))), seconds=150), final=True).verdict == "undecided"


def test_a_pipe_whose_writer_hangs_names_the_writer() -> None:
    reader = proc(wchan=PIPE_READ, pipes=Seen((pipe(5, "read", peers=(101,)),)))

    def tell(second: float):
        waits = calls_at(second, waiting(100, reads(101)), waiting(101))
        return {"processes": [reader, proc(101, FUTEX, ppid=100)], **waits}

    assert state(scene(tell, seconds=10)) is None
    verdict = state(scene(tell, seconds=14))
    assert (verdict.kind, verdict.culprit.pid) == ("blocked_peer", 101)


def test_a_pipe_whose_writer_computes_is_no_hang() -> None:
    def tell(second: float):
        reader = proc(wchan=PIPE_READ, pipes=Seen((pipe(5, "read", peers=(101,)),)))
        return {"processes": [reader, proc(101, "", ppid=100, run_s=second * 0.6)]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def attempt(second: float):
    """It wakes to look whether its attempt to connect has come through."""
    return {
        "processes": [proc(wchan=SLEEP, run_s=second / 200, switches=int(second))],
        "sockets": Seen((connection(state="SYN-SENT", received=0, peer="172.17.0.9:29500"),)),
    }


def test_an_attempt_to_connect_without_any_answer_ends_by_itself() -> None:
    """The kernel gives it up; then the program may try another address."""
    verdict = state(scene(attempt, seconds=200), final=True)
    assert verdict.verdict == "undecided" and "172.17.0.9:29500" in verdict.reason


def test_attempts_that_come_through_are_not() -> None:
    def tell(second: float):
        state_now = "SYN-SENT" if second < 25 else "ESTAB"
        return {**attempt(second), "sockets": Seen((connection(state=state_now, received=0),))}

    assert state(scene(tell, seconds=90)) is None


def test_a_partner_at_a_fifo_may_still_come() -> None:
    tell = stands(proc(wchan="kernel_clone", state="D"), proc(101, "wait_for_partner", ppid=100))
    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


def test_a_pipe_that_cannot_be_looked_at_leaves_it_undecided() -> None:
    assert state(scene(stands(proc(wchan=PIPE_READ, pipes=Blind("not permitted"))), seconds=150), final=True).verdict == "undecided"


@pytest.mark.parametrize("wchan", ["unix_stream_read_generic", RECV])
@pytest.mark.parametrize("call", [None, reads(900, known=False), reads(900, 901)])
def test_a_stopped_helper_beside_the_partner_that_it_reads_from_harms_nobody(wchan: str, call) -> None:
    """It reads the answer of a service by a socket; the helper is at the other end of a pipe."""

    def tell(second: float):
        reader = proc(wchan=wchan, pipes=Seen((pipe(5, "read", peers=(101,)),)))
        waits = calls_at(second, waiting(100, call)) if call is not None else {}
        return {"processes": [reader, proc(101, ppid=100, state="T")], "peers": Seen((proc(900, LOOP),)), **waits}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"


def test_the_stopped_partner_counts_by_the_descriptor_that_is_read() -> None:
    """A second connection, of a partner on another host, is not waited at."""

    def tell(second: float, *waits):
        far, near = connection(), connection(peer_pid=900, peer="10.0.0.5:9")
        known = {"sockets": Seen((far, near)), "peers": Seen((proc(900, state="T"),))}
        return {"processes": [proc(wchan=RECV)], **known, **calls_at(second, *waits)}

    assert state(scene(tell, seconds=200), final=True).verdict == "undecided"
    assert state(scene(lambda second: tell(second, waiting(100, reads(900))), seconds=22)).culprit.pid == 900


@pytest.mark.parametrize("peer", ["127.0.0.1:29500", "[::1]:29500", "10.0.0.5:29500"])
def test_a_server_on_this_host_that_does_not_accept_yet_is_not_hung(peer: str) -> None:
    """Its backlog is full while it loads: without a listener the attempt would be refused."""
    knocks = Seen((connection(state="SYN-SENT", received=0, peer=peer),))
    verdict = state(scene(lambda second: {**attempt(second), "sockets": knocks}, seconds=200), final=True)
    assert verdict.verdict == "undecided" and peer in verdict.reason


def knocking(*, seconds: float, each_s: float, comes_at: float = 1e9, number: int | None = 0):
    """A rank that knocks at an address which does not answer, by a new socket after so long."""

    def tell(second: float):
        found = "SYN-SENT" if second < comes_at else "ESTAB"
        one = connection(state=found, received=0, peer="172.17.0.9:29500")
        once = msgspec.structs.replace(one, local=f"10.0.0.5:{41000 + int(second / each_s)}")
        return {"processes": [proc(wchan="inet_wait_for_connect", rank=number)], "sockets": Seen((once,))}

    return scene(tell, seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "each_s"), [(60, 1e9), (130, 1e9), (300, 1e9), (200, 130), (300, 20)], ids=["short", "one", "long", "second", "impatient"]
)
def test_a_machine_that_boots_does_not_answer_yet(seconds: float, each_s: float) -> None:
    """The kernel repeats the first packet for two minutes, and the library the attempt, for as long as it was told."""
    verdict = state(knocking(seconds=seconds, each_s=each_s), final=True)
    assert verdict.verdict == "undecided" and "172.17.0.9:29500" in verdict.reason


def test_what_the_kernel_gave_up_twice_is_likely_never_to_answer() -> None:
    verdict = state(knocking(seconds=300, each_s=130))
    assert (verdict.verdict, verdict.kind, verdict.confidence) == ("hung", "blocked_peer", "likely") and "172.17.0.9" in verdict.reason
    assert state(knocking(seconds=300, each_s=130, number=None), final=True).verdict == "undecided"
    assert state(knocking(seconds=300, each_s=130, comes_at=264), final=True).verdict == "undecided"
