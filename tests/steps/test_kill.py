"""kill: exactly what was looked up, all that belongs to it, nothing else; and proof that it is gone."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from runbook.hosts.base import Process, ProcessId
from runbook.model.profile import Processes, Profile
from runbook.model.units import Rung
from runbook.steps.kill import Kill, Match, is_server, split, widen
from tests.support.context import LocalContext
from tests.support.processes import is_gone, python
from tests.support.waiting import until

SLEEPER = "import sys, signal; print('ready', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
FAMILY = (
    "import subprocess, sys, signal\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    "print('ready', flush=True)\n"
    "signal.pause()"
)
LADDER = (Rung("TERM 2s"), Rung("KILL 2s"))


def process(pid, *argv, ppid=1, sid=None, title=None, protected=None, start=100, run=None, launch=None, user="me", comm=None):
    argv = argv or ("python", "x")
    comm = comm or argv[0].rsplit("/", 1)[-1][:15]
    return Process(
        pid=pid,
        start=start,
        ppid=ppid,
        pgid=pid,
        sid=sid or pid,
        uid=0,
        user=user,
        state="S",
        comm=comm,
        argv=argv,
        title=title or " ".join(argv),
        rss=1,
        age_s=1.0,
        run=run,
        launch=launch,
        protected=protected,
    )


@pytest.fixture
def ctx(local_host, tmp_path):
    return LocalContext(local_host, tmp_path, box_s=30)


def test_a_process_is_ended_and_proved_gone(ctx):
    with python(SLEEPER, "needle-1f3a") as child:
        result = ctx.do(Kill(match=Match(cmdline="needle-1f3a"), ladder=LADDER))
        assert result.verdict == "passed" and [row["pid"] for row in result.fields["gone"]] == [child.pid]
        assert is_gone(child.pid)


def test_one_that_ignores_the_first_rung_meets_the_second(ctx):
    with python(STUBBORN, "needle-2b7c") as child:
        result = ctx.do(Kill(match=Match(cmdline="needle-2b7c"), ladder=(Rung("TERM 300ms"), Rung("KILL 5s"))))
        assert result.verdict == "passed" and is_gone(child.pid)


def test_children_go_with_their_parent(ctx):
    with python(FAMILY, "needle-3c9d") as child:
        kids = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
        assert kids
        result = ctx.do(Kill(match=Match(cmdline="needle-3c9d"), ladder=LADDER))
        assert {row["pid"] for row in result.fields["targets"]} >= {child.pid, *kids}
        assert all(is_gone(pid) for pid in [child.pid, *kids])


def test_an_editor_a_grep_or_a_shell_that_mentions_the_text_is_left_alone(ctx):
    with subprocess.Popen(["sh", "-c", "echo ready; read x; : needle-4e5f"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        shell.stdout.readline()
        result = ctx.do(Kill(match=Match(cmdline="needle-4e5f"), ladder=LADDER))
        assert result.fields["targets"] == [] and shell.poll() is None
        shell.stdin.close()


def test_nothing_matched_passes_unless_a_match_was_asked_for(ctx):
    assert ctx.do(Kill(match=Match(cmdline="no-such-needle-9999"))).verdict == "passed"
    assert ctx.do(Kill(match=Match(cmdline="no-such-needle-9999"), expect="some")).verdict == "failed"


def test_our_own_ancestry_named_exactly_is_refused_before_any_signal(ctx):
    result = ctx.do(Kill(pid=os.getpid()))
    assert result.verdict == "refused" and str(os.getpid()) in result.reason and "nothing was signalled" in result.reason


def test_the_owner_of_a_port_is_found(ctx):
    code = (
        "import socket, signal; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('ready', flush=True);"
        " print(s.getsockname()[1], flush=True); signal.pause()"
    )
    with python(code) as child:
        port = int(child.stdout.readline())
        result = ctx.do(Kill(match=Match(port=port), ladder=LADDER))
        assert [row["pid"] for row in result.fields["gone"]] == [child.pid]
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_check_mode_only_looks(local_host, tmp_path):
    with python(SLEEPER, "needle-5a6b") as child:
        result = LocalContext(local_host, tmp_path, check_mode=True).do(Kill(match=Match(cmdline="needle-5a6b")))
        assert result.verdict == "passed" and "would" in result.reason and not is_gone(child.pid)
        assert [row["pid"] for row in result.fields["targets"]] == [child.pid]


def test_renamed_workers_of_a_profile_are_found_by_their_title(ctx):
    pytest.importorskip("setproctitle", reason="comes with the lab extra")
    code = "import setproctitle, signal; setproctitle.setproctitle('needle6c7d::rank_TP0'); print('ready', flush=True); signal.pause()"
    ctx.profiles["engine"] = Profile(profile="engine", processes=Processes(main=r"needle6c7d\.launch_server", workers=r"^needle6c7d::rank"))
    with python(code) as child:
        until(lambda: "needle6c7d::rank" in Path(f"/proc/{child.pid}/cmdline").read_text())
        result = ctx.do(Kill(match=Match(profile="engine"), ladder=LADDER))
        assert [row["pid"] for row in result.fields["gone"]] == [child.pid]


def test_without_a_ladder_the_profile_says_how_to_end_it(ctx):
    ctx.profiles["engine"] = Profile(profile="engine", processes=Processes(main=r"needle-7d8e", ladder=("INT 200ms", "KILL 5s")))
    with python(STUBBORN.replace("15", "2"), "needle-7d8e") as child:
        result = ctx.do(Kill(match=Match(profile="engine")))
        assert [row["pid"] for row in result.fields["gone"]] == [child.pid] and child.wait(5) == -9


# pure ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv", [("vim", "launch_server.py"), ("/usr/bin/grep", "-r", "launch_server"), ("bash", "-c", "x launch_server"), ("-zsh",)]
)
def test_programs_that_only_mention_a_server(argv):
    assert not is_server(process(5, *argv))


@pytest.mark.parametrize("argv", [("/opt/venv/bin/python3.12", "-m", "x"), ("llama-server", "-m", "x")])
def test_programs_that_can_be_a_server(argv):
    assert is_server(process(5, *argv))


def test_widening_takes_descendants_and_sessions_that_a_seed_leads_but_not_the_users_shell():
    shell, server, rank, orphan, other = (
        process(10, "bash", sid=10),
        process(20, sid=20, ppid=10),
        process(21, sid=20, ppid=20),
        process(22, sid=20, ppid=1),
        process(30, sid=10, ppid=10),
    )
    table = [shell, server, rank, orphan, other]
    assert {p.pid for p in widen([server], table, "")} == {20, 21, 22}
    seed_without_session = process(40, sid=10, ppid=10)
    assert {p.pid for p in widen([seed_without_session], [*table, seed_without_session], "")} == {40}


def test_widening_takes_what_carries_our_runs_marker():
    main, stray = process(20), process(50, ppid=1, run="r1")
    assert {p.pid for p in widen([main], [main, stray], "r1")} == {20, 50}
    assert {p.pid for p in widen([main], [main, stray], "")} == {20}


def test_widening_leaves_the_processes_of_another_launch_of_the_run():
    main, stray, other = process(20), process(50, ppid=1, run="r1", launch="a"), process(60, ppid=1, run="r1", launch="b")
    assert {p.pid for p in widen([main], [main, stray, other], "r1", {"b"})} == {20, 50}


def test_protected_processes_are_spared_and_other_users_only_end_when_allowed():
    mine, theirs, sshd = process(1), process(2, protected="other_user", user="bob"), process(3, protected="sshd")
    targets, spared = split([mine, theirs, sshd], [])
    assert [p.pid for p in targets] == [1] and [p.pid for p in spared] == [2, 3]
    targets, _ = split([mine, theirs, sshd], ["bob"])
    assert [p.pid for p in targets] == [1, 2]


def test_a_match_that_would_match_everything_is_a_mistake():
    assert any("every process" in summary for _, summary, _ in Kill(match=Match()).problems())
    assert any("exactly one" in summary for _, summary, _ in Kill().problems())
    assert Kill(pid=3).problems() == []


def test_the_plan_says_what_would_be_ended():
    assert re.search(
        r"profile sglang.*TERM 9s.*KILL 10s", Kill(match=Match(profile="sglang"), ladder=(Rung("TERM 9s"), Rung("KILL 10s"))).plan()[0]
    )
    assert "by the ladder of its profile" in Kill(match=Match(profile="sglang")).plan()[0]
    assert "by TERM 15s, then KILL 10s" in Kill(match=Match(port=8000)).plan()[0]


def test_a_process_is_its_pid_and_its_start(ctx):
    """A pid that was used again is never signalled."""
    with python(SLEEPER) as child:
        report = ctx.host.kill([ProcessId(child.pid, 1)], ["KILL 1s"])
        assert not is_gone(child.pid)
        assert ProcessId(child.pid, 1) in report.gone
