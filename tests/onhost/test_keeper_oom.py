"""Only the kernel's own word makes a death an out-of-memory kill."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keeper_kit import Site, until

from runbook.onhost import oom
from runbook.onhost.oom import Look

V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
V2 = "low 0\nhigh 12\nmax 90\noom 4\noom_kill 3\noom_group_kill 0\n"
VMSTAT = "pgpgin 1\noom_kill 17\nnuma_hit 5\n"
KMSG = b"6,1234,98765432,-;Memory cgroup out of memory: Killed process 4711 (python3) total-vm:123kB, anon-rss:99kB\n SUBSYSTEM=x\n"


@pytest.mark.parametrize("text, found", [(V1, 3), (V2, 3), (VMSTAT, 17), ("", None), ("oom_kill_disable 0\n", None)])
def test_the_counter_is_read_from_every_kernels_form(text, found):
    assert oom.counter(text) == found


@pytest.mark.parametrize(
    "text, path",
    [
        ("0::/user.slice/a.scope\n", "/sys/fs/cgroup/user.slice/a.scope/memory.events"),
        ("0::/\n", "/sys/fs/cgroup/memory.events"),
        ("9:name=systemd:/\n4:memory:/box/1\n0::/\n", "/sys/fs/cgroup/memory/box/1/memory.oom_control"),
        ("7:cpu,memory:/j:ob\n", "/sys/fs/cgroup/memory/j:ob/memory.oom_control"),
        ("1:cpu:/\n", None),
    ],
)
def test_the_memory_cgroup_is_found_in_both_versions(text, path):
    assert oom.memory_cgroup(text) == path


def test_the_kernel_log_names_the_victim_of_this_launch_only():
    assert oom.victims_of(KMSG, 90.0) == {4711}
    assert oom.victims_of(KMSG, 98.0 + 2 * oom.SLACK_S) == set()
    assert oom.victims_of(b"6,1,98765432,-;Killed process group", 0) == set()
    assert oom.victims_of(b"garbage", 0) == set()


def test_a_kernel_log_that_may_not_be_read_names_nobody(tmp_path):
    assert oom.victims(0.0, str(tmp_path / "absent")) == set()


def test_a_sigkill_alone_is_no_oom_kill():
    quiet, loud = Look("/c", 3, 17), Look("/c", 4, 18)
    assert oom.source("SIGKILL", False, quiet, quiet, set(), {1}) == ""
    assert oom.source("SIGKILL", False, quiet, loud, set(), {1}) == "memory cgroup"
    assert oom.source("SIGKILL", False, Look("", None, 17), Look("", None, 18), set(), {1}) == "host counter"
    assert oom.source(None, False, quiet, quiet, {9}, {1, 9}) == "kernel log"  # a rank was the victim, and the server left


COUNTS = st.none() | st.integers(0, 100)
LOOKS = st.builds(Look, st.just("/c"), COUNTS, COUNTS)


def children(*looks):
    """What `Children` says at the time of the last of (t, kills, lost)."""
    seen = oom.Children(Look("/c", 3, None))
    for t, kills, lost in looks:
        seen.note(Look("/c", kills, None), lost, t)
    return seen.taken(looks[-1][0])


@pytest.mark.parametrize(
    "looks, taken",
    [
        ([(2, 4, True)], True),
        ([(2, 4, False), (8, 4, True), (300, 4, True)], True),  # it went seconds later, and the server noticed after minutes
        ([(2, 4, False), (300, 4, True)], False),  # somebody else in the same cgroup was the victim
        ([(2, 3, True)], False),
        ([(2, 4, True), (5000, 4, True)], False),  # a lost worker that was replaced long ago
        ([(2, None, True)], False),
    ],
)
def test_a_child_was_the_victim_when_it_went_as_the_counter_rose(looks, taken):
    assert children(*looks) is taken


def test_another_cgroups_counter_is_not_compared_with_the_first_ones():
    moved = oom.Children(Look("/c", 3, None))
    moved.note(Look("/d", 9, None), True, 1.0)
    assert not moved.taken(1.0)


def test_a_childs_kill_explains_an_end_that_was_not_ours():
    quiet = Look("/c", 3, 17)
    assert oom.source(None, False, quiet, quiet, set(), {1}, child=True) == oom.A_CHILD
    assert oom.source("SIGTERM", True, quiet, quiet, set(), {1}, child=True) == ""


@given(st.sampled_from(["SIGTERM", "SIGSEGV", None]), LOOKS, LOOKS)
def test_counters_never_explain_another_kind_of_end(signal, before, after):
    assert oom.source(signal, False, before, after, set(), {1}) == ""


@given(LOOKS, LOOKS)
def test_our_own_kill_is_never_laid_at_the_kernels_door(before, after):
    assert oom.source("SIGKILL", True, before, after, {2}, {1}) == ""


@given(LOOKS)
def test_a_counter_that_cannot_be_read_proves_nothing(before):
    assert oom.source("SIGKILL", False, before, Look("/c", None, None), set(), {1}) == ""


@pytest.fixture
def small_cgroup():
    """A memory cgroup of 64 MiB below our own; its folder."""
    events = oom.memory_cgroup(Path("/proc/self/cgroup").read_text())
    parent, name = os.path.split(events)
    folder = os.path.join(parent, f"runbook-test-{os.getpid()}")
    os.mkdir(folder)
    limits = {"memory.max": "64M", "memory.swap.max": "0"} if name == "memory.events" else {"memory.limit_in_bytes": "64M"}
    for file, value in limits.items():
        with open(os.path.join(folder, file), "w") as out:
            out.write(value)
    yield folder
    until(lambda: not Path(folder, "cgroup.procs").read_text())
    os.rmdir(folder)


def may_make_cgroups():
    events = oom.memory_cgroup(Path("/proc/self/cgroup").read_text())
    return events is not None and os.access(os.path.dirname(events), os.W_OK)


if may_make_cgroups():  # elsewhere the comparison above is all that can be tried

    @pytest.mark.slow
    def test_a_real_memory_limit_that_kills_is_told_as_such(tmp_path, small_cgroup):
        site = Site(tmp_path)
        try:
            eat = "import time; data = [bytearray(b'x') * (8 << 20) for _ in range(40)]"
            site.op("launch", id="server", argv=[sys.executable, "-c", eat], prelude=f"echo $$ > {small_cgroup}/cgroup.procs")
            ended = site.ended("server", 20)
            assert (ended["signal"], ended["oom_killed"]) == ("SIGKILL", True)
            assert ended["oom_source"] in ("kernel log", "memory cgroup", "host counter")
        finally:
            site.close()

    @pytest.mark.slow
    def test_a_real_limit_that_kills_a_child_explains_the_end_of_the_server(tmp_path, small_cgroup):
        site = Site(tmp_path)
        eat = "import time; time.sleep(1); data = [bytearray(b'x') * (8 << 20) for _ in range(40)]"  # as long as a rank's imports
        serve = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {eat!r}]).returncode != 0)"
        try:
            site.op("launch", id="server", argv=[sys.executable, "-c", serve], prelude=f"echo $$ > {small_cgroup}/cgroup.procs")
            ended = site.ended("server", 20)
            assert (ended["exit"], ended["oom_killed"]) == (1, True)
            assert ended["oom_source"] in ("kernel log", oom.A_CHILD)
        finally:
            site.close()


@pytest.mark.slow
def test_an_address_space_limit_is_no_oom_kill(tmp_path):
    site = Site(tmp_path)
    try:
        site.op("launch", id="server", argv=[sys.executable, "-c", "bytearray(1 << 30)"], prelude="ulimit -v 400000")
        ended = site.ended("server")
        assert (ended["exit"], ended["oom_killed"]) == (1, False)
        assert "MemoryError" in site.log("server")
    finally:
        site.close()
