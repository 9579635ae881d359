"""run: a command in a group of its own, with an exact ending, really ended when its time is over."""

import os
import shutil
import subprocess

import pytest

from runbook.model.event import WaitEnded
from runbook.steps.run import Run, RunExpect
from tests.support.context import LocalContext
from tests.support.processes import is_gone
from tests.support.waiting import until


@pytest.fixture
def ctx(local_host, tmp_path):
    return LocalContext(local_host, tmp_path, box_s=20)


def test_a_script_gives_its_output_and_exit(ctx):
    result = ctx.do(Run(shell="echo out; echo err >&2"))
    assert result.verdict == "passed"
    assert (result.fields["exit"], result.fields["stdout"], result.fields["stderr"]) == (0, "out\n", "err\n")


def test_a_script_stops_at_its_first_failing_command(ctx):
    result = ctx.do(Run(shell="false\necho not reached"))
    assert result.verdict == "failed" and "not reached" not in result.fields["stdout"]


def test_an_undefined_variable_is_an_error(ctx):
    assert ctx.do(Run(shell='echo "$NOT_DEFINED_ANYWHERE"')).verdict == "failed"


def test_a_command_without_a_shell_gets_its_words_as_they_are(ctx):
    result = ctx.do(Run(argv=["printf", "%s|", "a b", "$HOME", "*", 7]))
    assert result.fields["stdout"] == "a b|$HOME|*|7|"


def test_environment_directory_and_stdin_arrive(ctx, tmp_path):
    result = ctx.do(Run(argv=["sh", "-c", 'cat; pwd; echo "$A"'], stdin="in\n", cwd=str(tmp_path), env={"A": "x; echo y"}))
    assert result.fields["stdout"] == f"in\n{tmp_path}\nx; echo y\n"


def test_exit_codes_that_are_expected_pass(ctx):
    assert ctx.do(Run(shell="exit 3", expect=RunExpect(exit=(0, 3)))).verdict == "passed"
    result = ctx.do(Run(shell="echo why >&2; exit 3"))
    assert result.verdict == "failed" and "exit 3" in result.reason and "why" in result.reason


def test_a_signal_is_told_from_an_exit_code(ctx):
    result = ctx.do(Run(shell="kill -9 $$"))
    assert result.verdict == "failed" and result.fields["exit"] is None and result.fields["signal"] == "SIGKILL"


def test_json_and_lines_are_parsed(ctx):
    assert ctx.do(Run(shell="echo '{\"a\": [1]}'", parse="json")).fields["out"] == {"a": [1]}
    assert ctx.do(Run(shell="printf 'a\\nb\\n'", parse="lines")).fields["out"] == ["a", "b"]
    result = ctx.do(Run(shell="echo nope", parse="json"))
    assert result.verdict == "failed" and "not JSON" in result.reason


@pytest.mark.slow
def test_when_the_box_ends_its_whole_group_is_ended_and_proved_gone(local_host, tmp_path):
    ctx = LocalContext(local_host, tmp_path, box_s=1.0)
    pids = tmp_path / "pids"
    result = ctx.do(Run(shell=f"sleep 300 & echo $! >> {pids}\necho $$ >> {pids}\nwait"))
    assert result.verdict == "failed" and "is gone" in result.reason and result.fields["left_running"] == []
    found = [int(pid) for pid in pids.read_text().split()]
    assert len(found) == 2 and all(is_gone(pid) for pid in found)


@pytest.mark.slow
def test_a_background_child_that_keeps_the_output_open_is_a_finding_not_a_wait(ctx, tmp_path):
    pid_file = tmp_path / "pid"
    result = ctx.do(Run(shell=f"setsid sleep 300 &\necho $! > {pid_file}"))
    assert result.verdict == "passed" and ctx.clock.monotonic() - ctx.began < 10
    assert [code for code, _ in ctx.findings] == ["stdout_held"]
    pid = int(pid_file.read_text())
    os.kill(pid, 9)
    until(lambda: is_gone(pid))


def test_long_output_is_kept_as_head_and_tail_and_says_what_is_missing(ctx):
    result = ctx.do(Run(shell="echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"))
    text = result.fields["stdout"]
    assert text.startswith("first\n") and "last\n" in text and "bytes left out" in text and len(text) < 1_700_000


def test_a_program_that_is_not_there_is_a_failure_with_its_name(ctx):
    result = ctx.do(Run(argv=["no-such-program-xyz"]))
    assert result.verdict == "failed" and "no-such-program-xyz" in result.reason


def test_a_directory_that_is_not_there_is_a_failure_with_its_name(ctx):
    result = ctx.do(Run(shell="true", cwd="/no/such/place"))
    assert result.verdict == "failed" and "/no/such/place" in result.reason


def test_check_mode_runs_nothing(local_host, tmp_path):
    ctx = LocalContext(local_host, tmp_path, check_mode=True)
    result = ctx.do(Run(shell=f"touch {tmp_path}/made"))
    assert "would run" in result.reason and not (tmp_path / "made").exists()


def test_exactly_one_of_script_and_command():
    assert Run().problems() and Run(shell="x", argv=["x"]).problems() and Run(shell="x", stdin="y").problems()
    assert Run(shell="x").problems() == []


@pytest.mark.slow
def test_a_command_that_was_stopped_is_hung_long_before_its_time_is_over_and_is_ended(local_host, tmp_path):
    ctx = LocalContext(local_host, tmp_path, box_s=60)
    pid_file = tmp_path / "pid"
    result = ctx.at("work").do(Run(shell=f"echo begun; echo $$ > {pid_file}; kill -STOP $$; echo never"))
    assert (result.verdict, result.kind) == ("hung", "stopped"), result.reason
    assert ctx.remaining_s() > 20 and is_gone(int(pid_file.read_text()))
    assert result.fields["stdout"] == "begun\n" and result.fields["left_running"] == []


@pytest.mark.slow
def test_a_timeout_says_what_the_command_was_doing(local_host, tmp_path):
    ctx = LocalContext(local_host, tmp_path, box_s=12)
    result = ctx.at("work").do(Run(shell="for n in $(seq 1 99); do echo $n/99; sleep 0.5; done"))
    assert result.verdict == "failed" and "is gone" in result.reason
    assert result.diagnosis is not None and result.diagnosis.verdict == "slow" and "/99" in result.reason


@pytest.mark.slow
def test_what_ends_by_itself_after_it_was_watched_is_what_it_was(local_host, tmp_path):
    ctx = LocalContext(local_host, tmp_path, box_s=30)
    assert ctx.at("good").do(Run(shell="sleep 7; echo done")).fields["stdout"] == "done\n"
    bad = ctx.at("bad").do(Run(shell="sleep 7; exit 4"))
    assert bad.verdict == "failed" and bad.fields["exit"] == 4 and ctx.remaining_s() > 15
    assert [event.rule for event in ctx.events if isinstance(event, WaitEnded)] == ["run_ended", "run_ended"]


def test_a_stall_that_is_no_duration_is_told():
    assert Run(shell="x", stall_after="soon").problems() and Run(shell="x", stall_after="90s").problems() == []


HAS_SUDO = shutil.which("sudo") is not None and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not HAS_SUDO, reason="needs sudo without a password")
@pytest.mark.parametrize("how", ["shell", "argv"])
def test_through_sudo_variables_arrive_and_stand_in_no_command_line(ctx, how):
    """Everybody may read the command line of sudo; its variables may be secrets."""
    value = "s3cret 'quoted' $(id)\nsecond line"
    script = 'printf "%s|" "$T"; cat; cat /proc/$PPID/cmdline /proc/self/cmdline; id -u'
    said = {"shell": script.replace("cat; ", "")} if how == "shell" else {"argv": ["sh", "-c", script], "stdin": "typed|"}
    result = ctx.do(Run(**said, env={"T": value, "N": 3}, sudo=True))
    assert result.verdict == "passed", result.reason
    out = result.fields["stdout"]
    assert out.startswith(f"{value}|" + ("typed|" if how == "argv" else "")) and out.rstrip().endswith("0")
    assert "s3cret" not in out[len(value) :]
    assert ctx.do(Run(shell="true", env={"A;B": "x"}, sudo=True)).verdict == "failed"
