"""stdin and log_pipe: a pipe at whose other end nobody does anything; beside them pipes that are merely slow."""

from __future__ import annotations

import pytest

from runbook.model.sample import Seen
from runbook.model.waits import CallSample
from tests.diagnose.scenes import (
    FUTEX,
    LOOP,
    PIPE_READ,
    PIPE_WRITE,
    RECV,
    SLEEP,
    WAIT4,
    calls_at,
    futex,
    pipe,
    proc,
    reads,
    scene,
    stands,
    thread,
    waiting,
)
from tests.diagnose.stories import state


def asks(*peers: int, **more):
    """Descriptor 3, of which 0 was made, was left open."""
    ends = tuple(pipe(fd, "read", peers=peers) for fd in (0, 3))
    return proc(wchan=PIPE_READ, stdin="pipe", pipes=Seen(ends), **more)


def asked_by(holder, call: CallSample, *more: CallSample, caught=(), known: bool = True):
    """What was asked, and the process that holds the write end, outside of the tree."""

    def tell(second: float):
        waits = calls_at(second, waiting(100, reads(holder(second).pid, known=known)), waiting(50, call, *more, caught=caught), first=10.0)
        question = "Trust remote code? [y/N]\n" if second == 0 else ""
        return {"processes": [asks(50, ppid=50)], "log": question, "peers": Seen((holder(second),)), **waits}

    return tell


def child(pid: int | None) -> CallSample:
    return CallSample(tid=50, call="child", child=pid)


def test_stdin_of_a_launcher_that_only_waits_for_its_end_is_named_within_seconds() -> None:
    told = asked_by(lambda second: proc(50, WAIT4), child(100))
    assert state(scene(told, seconds=8)) is None
    verdict = state(scene(told, seconds=24))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "stdin", "stdin")
    assert "</dev/null" in verdict.next[0] and "[y/N]" in verdict.reason


def test_stdin_of_a_launcher_that_is_stopped_is_named_too() -> None:
    told = asked_by(lambda second: proc(50, "do_signal_stop", state="T"), CallSample(tid=50))
    assert state(scene(told, seconds=24)).kind == "stdin"


@pytest.mark.parametrize(
    "told",
    [
        asked_by(lambda second: proc(50, SLEEP, run_s=second * 0.03, switches=int(second * 2)), CallSample(tid=50)),
        asked_by(lambda second: proc(50, SLEEP), CallSample(tid=50)),
        asked_by(lambda second: proc(50, RECV), reads(tid=50, known=False)),
        asked_by(lambda second: proc(50, WAIT4), child(101)),
        asked_by(lambda second: proc(50, WAIT4), child(None)),
        asked_by(lambda second: proc(50, WAIT4), child(100), caught=(10,)),
        asked_by(lambda second: proc(50, WAIT4), child(100), known=False),
        asked_by(lambda second: proc(50, WAIT4, others=(thread(51, SLEEP),)), child(100), CallSample(tid=51)),
        stands(asks(1), log="Trust remote code? [y/N]"),
    ],
    ids=["works", "sleeps", "receives", "another child", "any child", "handles a signal", "one of several", "a thread sleeps", "unseen"],
)
def test_a_launcher_that_may_still_answer_is_no_hang(told) -> None:
    verdict = state(scene(told, seconds=150), final=True)
    assert verdict.verdict == "undecided"


def test_a_terminal_at_which_nobody_types_is_stdin_too() -> None:
    tell = stands(proc(wchan="n_tty_read", stdin="tty"), log="Proceed? [y/N] ")
    assert state(scene(tell, seconds=14)).kind == "stdin"


def test_a_chat_at_its_terminal_serves_whoever_sits_there() -> None:
    tell = stands(proc(wchan="n_tty_read", stdin="tty"), log=">>> ")
    assert state(scene(tell, seconds=200), final=True).verdict != "hung"


@pytest.mark.parametrize(("terminal", "kind"), [(True, "stdin"), (False, None)])
def test_a_newer_kernel_tells_it_by_the_system_call_alone(terminal: bool, kind: str | None) -> None:
    """Its wait channel is that of sockets as well, since Linux 6."""

    def tell(second: float):
        call = CallSample(tid=100, call="read", terminal=terminal)
        told = {"log": "Password: \n"} if second == 0 else {}
        return {"processes": [proc(wchan="wait_woken", stdin="tty")], **calls_at(second, waiting(100, call), first=2.0), **told}

    assert state(scene(tell, seconds=40), final=True).kind == kind


def test_a_consumer_whose_producer_works_is_no_hang() -> None:
    def tell(second: float):
        return {"processes": [asks(900)], "peers": Seen((proc(900, "", run_s=second * 0.9),))}

    assert state(scene(tell, seconds=150), final=True).verdict != "hung"


def test_a_server_that_holds_a_pipe_as_stdin_and_does_not_read_it_is_not_stdin() -> None:
    story = scene(stands(proc(wchan=FUTEX, stdin="pipe", pipes=Seen((pipe(0, "read", peers=(1,)),)))), seconds=30)
    assert state(story) is None


def test_of_two_pipes_nobody_knows_which_one_is_read() -> None:
    both = (pipe(0, "read", peers=(1,)), pipe(7, "read", peers=(900,)))
    both = (
        both[0],
        type(both[1])(
            **{name: getattr(both[1], name) for name in ("fd", "end", "fill", "capacity", "peers", "peers_known")}, name="pipe:[99]"
        ),
    )
    assert state(scene(stands(proc(wchan=PIPE_READ, stdin="pipe", pipes=Seen(both))), seconds=40)) is None


def writes(reader, **more):
    return stands(proc(wchan=PIPE_WRITE, pipes=Seen((pipe(1, "write", peers=(reader.pid,), fill=65536),))), reader, **more)


def read_by(reader, *calls: CallSample):
    """The same with the system calls of the reader's threads."""
    told = writes(reader)
    return lambda second: {**told(second), **calls_at(second, waiting(100, CallSample(tid=100)), waiting(reader.pid, *calls))}


def test_a_full_log_pipe_names_the_reader_that_stands_still() -> None:
    verdict = state(scene(read_by(proc(101, FUTEX, ppid=100), futex(101)), seconds=14))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.pid) == ("hung", "log_pipe", "log_pipe", 101)


def test_a_launcher_in_a_loop_over_descriptors_may_take_this_one_up_again() -> None:
    """As an event loop that lets its writers wait until it has handed on what it has."""

    def tell(second: float):
        launcher = proc(50, LOOP, run_s=second / 100, switches=int(second))
        writer = proc(100, PIPE_WRITE, ppid=50, pipes=Seen((pipe(2, "write", peers=(50,), fill=65536),)))
        return {"processes": [launcher, writer]}

    assert state(scene(tell, seconds=150), final=True).verdict == "undecided"


def test_a_full_log_pipe_whose_reader_waits_for_the_end_of_the_writer() -> None:
    def tell(second: float):
        launcher = proc(50, WAIT4, title="python launch.py")
        full = Seen((pipe(1, "write", peers=(50,), fill=65536),))
        writer = proc(100, PIPE_WRITE, ppid=50, others=(thread(150, switches=int(second)),), pipes=full)
        return {"processes": [launcher, writer], **calls_at(second, waiting(50, child(100)), waiting(100, CallSample(tid=100)))}

    assert state(scene(tell, seconds=14)).kind == "log_pipe"


def test_a_reader_that_is_stopped_reads_no_more() -> None:
    assert state(scene(writes(proc(101, "do_signal_stop", ppid=100, state="T")), seconds=14)).kind in ("log_pipe", "stopped")


SLEEPER = thread(151, SLEEP)


@pytest.mark.parametrize(
    "told",
    [
        read_by(proc(101, FUTEX, ppid=100, others=(SLEEPER,)), futex(101), CallSample(tid=151)),
        read_by(proc(101, LOOP, ppid=100), CallSample(tid=101)),
        read_by(proc(101, FUTEX, ppid=100), futex(101, timed=True)),
        read_by(proc(101, "wait_for_partner", ppid=100), CallSample(tid=101)),
        read_by(proc(101, WAIT4, ppid=100), CallSample(tid=101, call="child")),
        writes(proc(101, FUTEX, ppid=100)),
        stands(proc(wchan=PIPE_WRITE, pipes=Seen((pipe(1, "write", peers=(4000,), fill=65000),)))),
        stands(proc(wchan=PIPE_WRITE, pipes=Seen((pipe(1, "write", known=False, fill=65000),)))),
        stands(proc(wchan=PIPE_WRITE, others=(SLEEPER,), pipes=Seen((pipe(1, "write", peers=(100,), fill=65000),)))),
    ],
    ids=[
        "joins a sleeper",
        "awaits a timer",
        "a timed wait",
        "at a FIFO",
        "any child",
        "calls unread",
        "unseen",
        "unknown",
        "its own sleeping thread",
    ],
)
def test_a_reader_that_may_read_on_is_no_hang(told) -> None:
    verdict = state(scene(told, seconds=150), final=True)
    assert verdict.verdict == "undecided"


@pytest.mark.parametrize("seconds", [14, 28])
def test_a_reader_that_sleeps_between_two_reads_is_slow(seconds: int) -> None:
    def tell(second: float):
        reader = proc(101, SLEEP, ppid=100, run_s=second / 100, switches=int(second))
        return {"processes": [proc(wchan=PIPE_WRITE, pipes=Seen((pipe(1, "write", peers=(101,), fill=65536),))), reader]}

    assert state(scene(tell, seconds=seconds)) is None


def test_a_writer_that_goes_on_now_and_then_has_a_slow_reader() -> None:
    def tell(second: float):
        return {"processes": [proc(wchan=PIPE_WRITE, switches=int(second / 4), pipes=Seen((pipe(1, "write", peers=(4000,), fill=65000),)))]}

    assert state(scene(tell, seconds=60), final=True).verdict != "hung"


def test_another_pipe_than_the_log_is_not_log_pipe() -> None:
    writer = proc(wchan=PIPE_WRITE, pipes=Seen((pipe(9, "write", peers=(101,), fill=65536),)))
    assert state(scene(stands(writer, proc(101, FUTEX, ppid=100)), seconds=20)) is None
