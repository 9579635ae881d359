"""Reading /proc."""

import os
import signal
import subprocess
import sys

import pytest

from runbook.onhost import procs

STAT = b"42 (a) b (c)) S 7 8 9 0 -1 4194560 1 2 3 4 50 6 0 0 20 0 3 0 777 1000 25 0 0"


def test_a_comm_with_brackets_and_blanks_does_not_shift_the_fields():
    stat = procs.parse_stat(STAT)
    assert (stat.pid, stat.comm, stat.state, stat.ppid, stat.pgid, stat.sid) == (42, "a) b (c)", "S", 7, 8, 9)
    assert (stat.cpu_ticks, stat.threads, stat.start, stat.rss) == (56, 3, 777, 25 * procs.PAGE)


def test_a_process_whose_first_thread_has_left_lives_while_others_do():
    assert procs.parse_stat(STAT.replace(b"S 7", b"Z 7")).state == "S"
    assert procs.parse_stat(STAT.replace(b"S 7", b"Z 7").replace(b"0 3 0 777", b"0 1 0 777")).state == "Z"


HIDDEN = """
import os, subprocess
from runbook.onhost import procs
subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
print(procs.shows_everyone())
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(procs.shows_everyone())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts /proc in a namespace of its own")
def test_where_the_processes_of_others_are_hidden_nobody_knows_them_all():
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", HIDDEN], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "False"], "")


@pytest.mark.parametrize(
    ("comm", "raw", "title"),
    [
        ("python3", b"python3\0-m\0server\0", "python3"),
        ("sglang::schedul", b"sglang::scheduler_TP0\0\0\0\0\0\0", "sglang::scheduler_TP0"),
        ("sglang::schedul", b"sglang::scheduler_TP0\0", "sglang::scheduler_TP0"),
        ("nginx", b"nginx: master process /usr/sbin/nginx\0", "nginx: master process /usr/sbin/nginx"),
        ("renamed", b"/usr/bin/python3\0", "renamed"),
        ("gone", None, "gone"),
        ("kworker", b"", "kworker"),
    ],
)
def test_the_title_is_what_the_process_calls_itself(comm, raw, title):
    assert procs.title_of(comm, raw) == title


def table(**parents):
    rows = {int(name[1:]): parent for name, parent in parents.items()}
    return {pid: procs.parse_stat(STAT)._replace(pid=pid, ppid=parent, start=pid * 10) for pid, parent in rows.items()}


def test_scope_shows_what_is_below_a_process_and_nothing_when_it_is_gone():
    everything = table(p1=0, p5=1, p6=5, p7=6, p8=1)
    assert set(procs.visible(everything, (5, 50))) == {6, 7}
    assert procs.visible(everything, (5, 51)) == {}  # the pid was reused
    assert procs.visible(everything, None) is everything
    assert procs.ancestors(7, everything) == [7, 6, 5, 1]


def test_a_process_is_alive_only_under_its_own_start_time():
    child = subprocess.Popen(["sleep", "30"])
    start = procs.start_ticks(child.pid)
    assert procs.is_alive(child.pid, start) and not procs.is_alive(child.pid, start + 1)
    assert procs.is_visible(child.pid, (os.getpid(), procs.start_ticks(os.getpid())))
    assert not procs.is_visible(os.getpid(), (child.pid, start))
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not procs.is_alive(child.pid, start) and procs.same(child.pid, start).state == "Z"
    child.wait()
    assert procs.read_stat(child.pid) is None and procs.environ_value(child.pid, "PATH") is None and procs.title(child.pid) == ""


def test_a_scope_that_cannot_be_read_is_an_error():
    assert procs.parse_scope("12:34") == (12, 34) and procs.parse_scope("") is None and procs.parse_scope(None) is None
    with pytest.raises(ValueError):
        procs.parse_scope("12")


def test_reading_that_blocks_is_given_up():
    read_end, write_end = os.pipe()
    assert procs.bounded(lambda: os.read(read_end, 1), 0.05) is None
    os.write(write_end, b"x")
    assert procs.bounded(lambda: b"quick") == b"quick"


def test_a_main_thread_is_first_also_where_the_kernels_numbers_have_begun_anew():
    assert procs.main_first(31484, [300, 31484, 301, 31485]) == [31484, 300, 301, 31485]
