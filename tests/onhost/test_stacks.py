"""Stacks of real processes: Python threads in a deadlock, what has no Python, what is not there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runbook.hosts.base import Host, ProcessId
from runbook.hosts.py_spy import installed, machine_of
from runbook.model.sample import Absent, Blind, Seen
from runbook.model.waits import StackSample
from runbook.onhost import foreign, py_spy
from tests.support.processes import python, start_of, state_of
from tests.support.waiting import until

DEADLOCK = """
import threading, time
first, second = threading.Lock(), threading.Lock()
def take_both(one, other):
    with one:
        both.wait()
        with other:
            pass
both = threading.Barrier(2)
threading.Thread(target=take_both, args=(second, first), name="second-first", daemon=True).start()
print("ready", flush=True)
take_both(first, second)
"""


def stacks(host: Host, *targets: tuple[ProcessId, int | None], look: int = 1) -> tuple[StackSample, ...]:
    found = host.stacks(targets, look=look)
    assert isinstance(found, Seen), found
    value: tuple[StackSample, ...] = found.value
    return value


def settled(host: Host, target: ProcessId) -> tuple[StackSample, ...]:
    """Once both threads wait for their second lock."""
    return until(lambda: (found := stacks(host, (target, 3))) and sum(s.frames[0].startswith("take_both (") for s in found) == 2 and found)


def test_both_threads_of_a_deadlock_are_shown_and_the_process_is_not_touched(local_host: Host) -> None:
    with python(DEADLOCK) as child:
        target = start_of(child.pid)
        found = settled(local_host, target)
        switches = Path(f"/proc/{child.pid}/status").read_text().split("nonvoluntary")[0].rsplit("voluntary_ctxt_switches:", 1)[1]
        again = stacks(local_host, (target, 3), look=2)
        after = Path(f"/proc/{child.pid}/status").read_text().split("nonvoluntary")[0].rsplit("voluntary_ctxt_switches:", 1)[1]
    main, other = found
    assert (main.main, main.tid, main.rank, main.source, main.look) == (True, child.pid, 3, "py-spy", 1)
    assert main.frames[0] == "take_both (<string>:7)" and main.frames[-1].startswith("<module> (<string>:")
    assert (other.main, other.thread) == (False, "second-first") and other.tid != child.pid
    assert [sample.frames for sample in again] == [sample.frames for sample in found] and {sample.look for sample in again} == {2}
    assert switches == after, "the target ran because it was looked at"


def test_a_stopped_process_still_shows_its_stack(local_host: Host) -> None:
    with python(DEADLOCK) as child:
        target = start_of(child.pid)
        settled(local_host, target)
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: state_of(child.pid) == "T")
        assert stacks(local_host, (target, None))[0].frames[0].startswith("take_both (")
        assert state_of(child.pid) == "T"


def test_a_process_without_python_gives_its_wait_channels_and_says_why(local_host: Host) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        until(lambda: state_of(child.pid) == "S")
        (only,) = stacks(local_host, (start_of(child.pid), None))
    finally:
        child.kill()
        child.wait()
    assert (only.source, only.main, only.tid, only.thread) == ("wchan", True, child.pid, "sleep")
    assert only.frames == ("hrtimer_nanosleep",) and only.note == "it runs no Python"


def test_a_vfork_parent_is_not_read_by_py_spy(local_host: Host) -> None:
    """Its memory belongs to the child until that execs: it waits in D state."""
    code = "import os, subprocess, sys; print('ready', flush=True); subprocess._USE_VFORK = True; import ctypes; libc = ctypes.PyDLL(None); pid = libc.vfork(); (libc.sleep(60), libc._exit(0)) if pid == 0 else None"
    with python(code) as child:
        until(lambda: state_of(child.pid) == "D")
        (only,) = [row for row in stacks(local_host, (start_of(child.pid), None)) if row.main]
    assert only.source == "wchan" and "D state" in only.note


def test_what_is_gone_is_absent_and_a_reused_pid_is_not_looked_at(local_host: Host) -> None:
    with python("print('ready', flush=True); import time; time.sleep(60)") as child:
        target = start_of(child.pid)
        pid, start = target.pid, target.start
        assert isinstance(local_host.stacks([(ProcessId(pid, start - 1), None)]), Absent)
    assert isinstance(local_host.stacks([(ProcessId(pid, start), None)]), Absent)


@pytest.mark.slow
def test_without_py_spy_the_host_gets_this_machines_copy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runbook.hosts.local import connect_local

    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    system_python = shutil.which("python3", path=os.defpath)
    if system_python is None or shutil.which("py-spy", path=os.defpath):
        pytest.skip("needs a system Python that has no py-spy beside it")
    host = connect_local()
    child = subprocess.Popen([system_python, "-c", "import time\ndef idle(): time.sleep(60)\nidle()"])
    try:
        target = start_of(child.pid)
        found = until(lambda: (rows := stacks(host, (target, None))) and rows[0].frames[0].startswith("idle (") and rows)
        copy = Path(host.facts.state_dir) / "bin" / "py-spy"
        before = copy.stat().st_mtime_ns
        stacks(host, (target, None))
        assert found[0].source == "py-spy" and copy.stat().st_mtime_ns == before and copy.stat().st_mode & 0o777 == 0o700
    finally:
        child.kill()
        child.wait()
        host.close()


def test_a_program_that_another_account_could_have_put_there_is_not_run(tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert py_spy.may_run(str(tool))
    tool.chmod(0o777)
    assert not py_spy.may_run(str(tool))
    tool.chmod(0o755)
    tmp_path.chmod(0o777)
    assert not py_spy.may_run(str(tool))


def test_a_tool_that_never_answers_is_ended_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = foreign.ask(["sleep", "60"], 0.2)
    assert answer.problem == "sleep: no answer in 0 s; it was ended" and time.monotonic() - began < 2
    flood = foreign.ask([sys.executable, "-c", "print('x' * 100000)"], 10.0, most=1000)
    assert len(flood.stdout) == 1000 and "said more than 1000 bytes" in flood.problem


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Permission Denied: Try running again with elevated permissions", "ptrace rights"),
        ("Error: Failed to find python version from target process", "no Python in this process"),
        ("Error: Operation not permitted (os error 1)", "exited 1: Error: Operation not permitted"),
    ],
)
def test_what_py_spy_complains_of_is_told_in_words(said: str, told: str) -> None:
    assert told in py_spy.complaint(said, 1)


def test_a_deep_stack_keeps_its_innermost_frames() -> None:
    frames = [{"name": f"f{n}", "short_filename": "a.py", "filename": "/a.py", "line": n} for n in range(200)]
    (row,) = py_spy.threads([{"thread_name": "MainThread", "os_thread_id": 7, "thread_id": 9, "frames": frames}], 7)
    assert row["frames"][0] == "f0 (a.py:0)" and len(row["frames"]) == py_spy.MOST_FRAMES and row["frames"][-1] == "... (141 more)"


def test_to_ask_an_event_whether_it_is_set_is_no_place_of_its_own() -> None:
    asks = {"name": "is_set", "short_filename": "threading.py", "filename": "/lib/threading.py", "line": 9}
    frames = [asks, {"name": "spin", "short_filename": "a.py", "filename": "/a.py", "line": 3}]
    (row,) = py_spy.threads([{"thread_name": "MainThread", "os_thread_id": 7, "thread_id": 9, "frames": frames}], 7)
    assert row["frames"] == ["spin (a.py:3)"] and row["spots"] == [("/a.py", 3, None)]


def test_a_pool_at_one_place_is_told_once_with_its_size(local_host: Host) -> None:
    pool = """
import threading, time
def waits_for_work(): time.sleep(60)
for _ in range(30): threading.Thread(target=waits_for_work, daemon=True).start()
print("ready", flush=True)
waits_for_work()
"""
    with python(pool) as child:
        found = until(
            lambda: (rows := stacks(local_host, (start_of(child.pid), None))) and rows[0].frames[0].startswith("waits_for_work") and rows
        )
    assert [row.main for row in found] == [True, False, False, False] and found[-1].note == "27 more threads at this place"


def test_the_installed_py_spy_is_for_this_machine() -> None:
    path = installed()
    assert path is not None and machine_of(path.read_bytes()[:64]) == os.uname().machine
    assert machine_of(b"#!/bin/sh\n") is None


def test_a_process_of_another_user_is_blind_and_says_what_to_do() -> None:
    from runbook.hosts.local import connect_local

    python3 = shutil.which("python3", path=os.defpath)
    if os.geteuid() != 0 or python3 is None or shutil.which("setpriv") is None:
        pytest.skip("needs root, to look as another user")
    host = connect_local(via="env XDG_STATE_HOME=/nonexistent setpriv --reuid=65534 --clear-groups", python=python3)
    try:
        with python("print('ready', flush=True); import time; time.sleep(60)") as child:
            found = host.stacks([(start_of(child.pid), None)])
    finally:
        host.close()
    assert isinstance(found, Blind) and "via: sudo -n -u root" in found.reason
