"""In which system call each thread waits, and who could end that wait. All with real processes."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest
from keeper_kit import Site, until

from runbook.model.sample import Sample, Seen
from runbook.onhost import calls, procs

pytestmark = pytest.mark.skipif(not calls._NAMES, reason="no table for this machine")


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def start(tmp_path):
    """Start a Python program; it says `up` when it is ready."""
    started = []

    def begin(text):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True)
        started.append(process)
        assert process.stdout.readline().startswith("up")
        return process.pid

    yield begin
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def waits(site, pid, call):
    """The waits of a process by its main thread's pid, once that is in the call."""
    args = {"run": None, "pid": pid, "start": procs.start_ticks(pid), "threads": True, "full": True, "calls": True}
    found = {}

    def look():
        outcome = msgspec.convert(site.op("sample", **args), Sample).calls
        assert isinstance(outcome, Seen), outcome
        found.clear()
        found.update({one.pid: one for one in outcome.value})
        return main(found, pid).call == call

    until(look, 20)
    return found


def main(found, pid):
    return next(one for one in found[pid].threads if one.tid == pid)


def test_a_lock_is_a_private_futex_without_a_limit_of_time(site, start):
    pid = start("import threading; print('up', flush=True); threading.Event().wait()")
    found = waits(site, pid, "futex")
    assert main(found, pid).private and not main(found, pid).timed and main(found, pid).at
    assert found[pid].caught == (2,)


def test_a_wait_with_a_limit_and_a_handler_are_seen(site, start):
    pid = start(
        "import signal, threading; signal.signal(signal.SIGUSR1, lambda *a: None); print('up', flush=True); threading.Event().wait(60)"
    )
    found = waits(site, pid, "futex")
    assert main(found, pid).timed and found[pid].caught == (2, 10)


def test_a_semaphore_of_several_processes_is_not_private(site, start):
    pid = start("import multiprocessing as m; lock = m.Lock(); lock.acquire(); print('up', flush=True); lock.acquire()")
    assert not main(waits(site, pid, "futex"), pid).private


def test_who_could_write_into_a_pipe_that_is_read(site, start):
    pid = start("import os, time; r, w = os.pipe(); pid = os.fork(); print('up', flush=True) if pid else time.sleep(99); os.read(r, 1)")
    (child,) = [stat.pid for stat in procs.process_table().values() if stat.ppid == pid]
    call = main(waits(site, pid, "read"), pid)
    assert (call.peers, call.peers_known) == ((pid, child), True)


def test_an_end_of_a_connection_and_the_child_that_is_waited_for(site, start):
    text = (
        "import os, socket\nlistener = socket.create_server(('127.0.0.1', 0))\nchild = os.fork()\n"
        "if child == 0:\n    socket.create_connection(listener.getsockname()).recv(1)\n"
        "kept = listener.accept()\nprint('up', flush=True)\nos.waitpid(child, 0)"
    )
    pid = start(text)
    found = waits(site, pid, "child")
    (child,) = [one for one in found if one != pid]
    assert main(found, pid).child == child
    assert (main(found, child).call, main(found, child).peers, main(found, child).peers_known) == ("read", (pid,), True)


def test_a_fifo_may_be_opened_by_anybody(site, start):
    pid = start("import os; os.mkfifo('f'); fd = os.open('f', os.O_RDWR); print('up', flush=True); os.read(fd, 1)")
    assert not main(waits(site, pid, "read"), pid).peers_known


def test_it_is_not_read_unless_it_is_asked(site, start):
    pid = start("import time; print('up', flush=True); time.sleep(99)")
    args = {"run": None, "pid": pid, "start": procs.start_ticks(pid), "threads": True, "full": True}
    assert "calls" not in site.op("sample", **args)


@pytest.mark.parametrize(("raw", "call"), [(b"running\n", ""), (b"-1 0x7ffd 0x7f\n", ""), (b"999 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n", "")])
def test_what_is_no_known_call_has_no_name(raw, call):
    assert calls.parse(raw, 1)["call"] == call
