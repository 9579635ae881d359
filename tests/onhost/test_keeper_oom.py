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


def test_an_address_space_limit_is_no_oom_kill(tmp_path):
    site = Site(tmp_path)
    try:
        site.op("launch", id="server", argv=[sys.executable, "-c", "bytearray(1 << 30)"], prelude="ulimit -v 400000")
        ended = site.ended("server")
        assert (ended["exit"], ended["oom_killed"]) == (1, False)
        assert "MemoryError" in site.log("server")
    finally:
        site.close()
