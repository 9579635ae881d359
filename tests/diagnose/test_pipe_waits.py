"""stdin and log_pipe: a pipe at whose other end nobody does anything; beside them pipes that are merely slow."""

from __future__ import annotations

import pytest

from runbook.model.sample import Seen
from tests.diagnose.scenes import FUTEX, LOOP, PIPE_READ, PIPE_WRITE, SLEEP, pipe, proc, scene, stands


def state(story, **question):
    return story.judge(about="state", **question)


def asks(*peers: int, **more):
    return proc(wchan=PIPE_READ, stdin="pipe", pipes=Seen((pipe(0, "read", peers=peers),)), **more)


def test_stdin_of_a_launcher_that_writes_nothing_is_named_within_seconds() -> None:
    assert state(scene(stands(asks(1)), seconds=8)) is None
    verdict = state(scene(stands(asks(1), log="Trust remote code? [y/N]"), seconds=14))
    assert (verdict.verdict, verdict.kind, verdict.rule) == ("hung", "stdin", "stdin")
    assert "</dev/null" in verdict.next[0] and "[y/N]" in verdict.reason


def test_a_terminal_at_which_nobody_types_is_stdin_too() -> None:
    assert state(scene(stands(proc(wchan="n_tty_read", stdin="tty")), seconds=14)).kind == "stdin"


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


def test_a_full_log_pipe_names_the_reader_that_stands_still() -> None:
    verdict = state(scene(writes(proc(101, FUTEX, ppid=100)), seconds=14))
    assert (verdict.verdict, verdict.kind, verdict.rule, verdict.culprit.pid) == ("hung", "log_pipe", "log_pipe", 101)


def test_a_launcher_that_looks_at_everything_but_this_pipe_is_such_a_reader() -> None:
    def tell(second: float):
        launcher = proc(50, LOOP, run_s=second / 100, switches=int(second))
        writer = proc(100, PIPE_WRITE, ppid=50, pipes=Seen((pipe(2, "write", peers=(50,), fill=65536),)))
        return {"processes": [launcher, writer]}

    assert state(scene(tell, seconds=14)).kind == "log_pipe"


def test_a_reader_that_cannot_be_seen_may_be_ourselves() -> None:
    writer = proc(wchan=PIPE_WRITE, pipes=Seen((pipe(1, "write", peers=(4000,), fill=65000),)))
    assert state(scene(stands(writer), seconds=14)).kind == "log_pipe"


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
