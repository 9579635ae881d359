"""grep: presence ends a wait, and absence counts only where it could have been seen."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from runbook.hosts.base import LaunchSpec, ProcessId
from runbook.model.units import Duration
from runbook.steps.base import Launched
from runbook.steps.grep import Grep
from tests.steps.serving import serving
from tests.support.context import LocalContext
from tests.support.patching import make
from tests.support.waiting import until

__all__ = ["serving"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("boot\n")
    return path


@pytest.fixture
def ctx(patch_host, log, tmp_path):
    ctx = LocalContext(patch_host, tmp_path / "run")
    ctx.watch_log(str(log))
    return ctx


def say(log, text: str) -> None:
    with log.open("a") as out:
        out.write(text)


def grep(ctx, log, **body):
    return ctx.at("look").do(make(Grep, {"file": str(log), **body}))


def test_named_groups_become_fields_and_progress_bars_are_lines(ctx, log):
    say(log, "a\rDecode batch, accept len: 4.9\rb\nDecode batch, accept len: 1.1\n")
    result = grep(ctx, log, pattern=r"accept len: (?P<accept>[\d.]+)", context=1)
    assert result.verdict == "passed" and result.fields["count"] == 2
    first = result.fields["matches"][0]
    assert (first["accept"], first["before"], first["after"]) == ("4.9", ["a"], ["b"])
    assert log.read_bytes()[first["offset"] :].startswith(b"Decode")


def test_only_what_came_since_the_step_counts(ctx, log):
    say(log, "Traceback\n")
    with ctx.span("chat"):
        say(log, "fine\n")
    assert grep(ctx, log, pattern="Traceback", since="chat").verdict == "failed"
    assert grep(ctx, log, pattern="Traceback").verdict == "passed"


def test_a_line_that_comes_later_is_waited_for(ctx, log):
    threading.Timer(0.3, say, (log, "ready\n")).start()
    result = grep(ctx, log, pattern="ready", wait="8s")
    assert result.verdict == "passed" and len(ctx.samples) > 1


@pytest.mark.parametrize(
    ("body", "verdict", "rule"),
    [
        ({"pattern": "x"}, "passed", "grep_found"),
        ({"pattern": "x", "count": {"max": 3}}, "passed", "grep_counted"),
        ({"pattern": "x", "count": {"min": 4}}, "failed", "grep_too_few"),
        ({"pattern": "x", "count": {"max": 1}}, "failed", "grep_too_many"),
        ({"pattern": "x", "expect": "absent"}, "failed", "grep_unexpected"),
        ({"pattern": "y", "expect": "absent"}, "undecided", "grep_blind"),
    ],
)
def test_what_it_finds_has_a_rule_of_its_own(ctx, log, body, verdict, rule):
    say(log, "x\nx\n")
    result = grep(ctx, log, **body)
    assert (result.verdict, result.diagnosis.rule) == (verdict, rule), result.reason


def test_absence_that_could_have_been_seen_is_passed(ctx, log):
    with log.open("a"):
        result = grep(ctx, log, pattern="y", expect="absent")
    assert (result.verdict, result.diagnosis.rule) == ("passed", "grep_absent"), result.reason


def test_bounds_on_the_count_hold(ctx, log):
    say(log, "x\n" * 3)
    assert grep(ctx, log, pattern="^x$", count={"min": 3, "max": 3}).verdict == "passed"
    assert "3 lines match `^x$`, expected at most 2" in grep(ctx, log, pattern="^x$", count={"max": 2}).reason
    assert grep(ctx, log, pattern="^y$", count={"max": 0}).verdict == "passed"


def test_absence_with_a_living_writer_and_a_control_passes(ctx, log):
    with log.open("a"):
        result = grep(ctx, log, pattern="Traceback", expect="absent", control="boot")
    assert result.verdict == "passed" and result.fields["scanned"][0]["writers"] == [os.getpid()]


def test_absence_proves_nothing_when_nobody_writes(ctx, log):
    result = grep(ctx, log, pattern="Traceback", expect="absent")
    assert result.verdict == "undecided" and "no process has it open for writing" in result.reason


def test_absence_proves_nothing_without_its_control(ctx, log):
    with log.open("a"):
        result = grep(ctx, log, pattern="Traceback", expect="absent", control="no such line")
    assert result.verdict == "undecided" and "control" in result.reason


def test_absence_proves_nothing_when_the_log_was_cut_inside_the_window(ctx, log):
    with ctx.span("chat"):
        log.write_text("")
    with log.open("a"):
        result = grep(ctx, log, pattern="Traceback", expect="absent", since="chat")
    assert result.verdict == "undecided" and "cut" in result.reason


def test_a_rotation_inside_the_window_is_followed(ctx, log):
    with ctx.span("chat"):
        say(log, "before\n")
        log.rename(log.with_name("server.log.1"))
        log.write_text("after\n")
    result = grep(ctx, log, pattern="before|after", since="chat", count={"min": 2})
    assert result.verdict == "passed", result.reason


def test_absence_fails_at_once_when_it_is_there(ctx, log):
    say(log, "Traceback (most recent call last)\n")
    result = grep(ctx, log, pattern="Traceback", expect="absent", wait="8s")
    assert result.verdict == "failed" and len(ctx.samples) == 1


def test_a_log_that_is_not_there_is_undecided_not_absent(ctx, log):
    assert grep(ctx, log.with_name("other.log"), pattern="x", expect="absent").verdict == "undecided"
    assert grep(ctx, log.with_name("other.log"), pattern="x").verdict == "undecided"


def test_a_log_that_nobody_watched_when_the_window_began_is_undecided(patch_host, log, tmp_path):
    ctx = LocalContext(patch_host, tmp_path / "run")
    with ctx.span("chat"):
        pass
    assert grep(ctx, log, pattern="Traceback", expect="absent", since="chat").verdict == "undecided"


@pytest.mark.slow
def test_the_log_of_a_launch_is_read_from_where_the_launch_began(patch_ctx, log):
    """A log that is used again keeps the lines of the run before; they are not this server's."""
    say(log, "Traceback of the run before\n")
    patch_ctx.host.ensure_keeper(patch_ctx.run.id)
    spec = LaunchSpec(run=patch_ctx.run.id, id="server", shell="echo hello; exec sleep 60", log=str(log))
    state = patch_ctx.host.launch(spec)
    patch_ctx.keep(Launched(step="server", host="local", state=state, profile=patch_ctx.profile("generic"), port=None, env={}))
    body = {"log": "server", "pattern": "Traceback", "expect": "absent", "control": "hello", "wait": "300ms"}
    result = patch_ctx.at("look").do(make(Grep, body))
    assert result.verdict == "passed", result.reason
    patch_ctx.host.kill([ProcessId(state.pid, state.start)], ["KILL 5s"])
    with patch_ctx.span("late"):
        pass
    result = patch_ctx.at("look").do(make(Grep, {"log": "server", "pattern": "x", "expect": "absent", "since": "late"}))
    assert result.verdict == "undecided"


def test_a_window_that_begins_before_the_launch_has_all_of_its_log(patch_ctx, log):
    """The engine first notes a log after its launch: lines before that note belong to the window too."""
    with patch_ctx.span("server"):
        patch_ctx.host.ensure_keeper(patch_ctx.run.id)
        state = patch_ctx.host.launch(LaunchSpec(run=patch_ctx.run.id, id="server", shell="echo early; exec sleep 60", log=str(log)))
        patch_ctx.keep(Launched(step="server", host="local", state=state, profile=patch_ctx.profile("generic"), port=None, env={}))
    until(lambda: "early" in log.read_text())
    patch_ctx.spans["server"].begin = patch_ctx.host.marks([str(log)])
    result = patch_ctx.at("look").do(make(Grep, {"log": "server", "pattern": "early", "since": "server"}))
    assert result.verdict == "passed", result.reason


def test_static_mistakes_are_told():
    step = make(Grep, {"pattern": "x", "count": {"min": 3, "max": 1}, "expect": "absent"})
    assert [path for path, _, _ in step.problems()] == ["", "count", "count"]


@pytest.mark.slow
def test_a_line_that_a_dead_server_will_never_write_is_not_waited_for(serving):
    serving.launch("--load", "1", "--fails", "no fc layer")
    result = serving.do("seen", Grep(log="server", pattern="never written", wait=Duration(50)), box_s=60)
    assert result.verdict == "crashed" and "no fc layer" in result.reason and "never written" in result.reason
    assert serving.ctx.remaining_s() > 40


@pytest.mark.slow
def test_a_line_of_a_stopped_server_is_not_waited_for_either(serving):
    serving.launch("--load", "60")
    os.kill(serving.pid, signal.SIGSTOP)
    result = serving.do("seen", Grep(log="server", pattern="never written", wait=Duration(50)), box_s=60)
    assert (result.verdict, result.kind) == ("hung", "stopped") and serving.ctx.remaining_s() > 20


@pytest.mark.slow
def test_a_line_that_comes_while_the_server_is_watched_ends_the_wait(serving):
    serving.launch("--load", "4")
    result = serving.do("seen", Grep(log="server", pattern="Load weight end", wait=Duration(50)), box_s=60)
    assert result.verdict == "passed" and serving.ctx.remaining_s() > 45
