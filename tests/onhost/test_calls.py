"""In which system call each thread waits, and who could end that wait. All with real processes."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest
from keeper_kit import Site, until

from runbook.model.sample import Sample, Seen
from runbook.onhost import calls, procs, wait_limits

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


@pytest.fixture(autouse=True)
def every_look_is_complete(monkeypatch):
    """On a host where much begins and ends, a look at all processes takes its time."""
    monkeypatch.setattr("runbook.onhost.descriptors.WORLD_S", 10.0)
    monkeypatch.setattr("runbook.onhost.in_flight.MOST_S", 10.0)


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
    assert found[pid].caught == ()


def test_a_wait_with_a_limit_and_a_handler_are_seen(site, start):
    pid = start(
        "import signal, threading; signal.signal(signal.SIGUSR1, lambda *a: None); print('up', flush=True); threading.Event().wait(60)"
    )
    found = waits(site, pid, "futex")
    assert main(found, pid).timed and found[pid].caught == (10,)


def test_a_semaphore_of_several_processes_is_not_private(site, start):
    pid = start("import multiprocessing as m; lock = m.Lock(); lock.acquire(); print('up', flush=True); lock.acquire()")
    assert not main(waits(site, pid, "futex"), pid).private


def test_who_could_write_into_a_pipe_that_is_read(site, start):
    pid = start("import os, time; r, w = os.pipe(); pid = os.fork(); print('up', flush=True) if pid else time.sleep(99); os.read(r, 1)")
    (child,) = [stat.pid for stat in procs.process_table().values() if stat.ppid == pid]
    call = main(waits(site, pid, "read"), pid)
    assert (call.peers, call.peers_known) == ((pid, child), True)


def test_who_could_read_from_a_pipe_that_is_full(site, start):
    pid = start(
        "import os, time; r, w = os.pipe(); pid = os.fork(); print('up', flush=True) if pid else time.sleep(99); os.write(w, b'x' * 99999)"
    )
    (child,) = [stat.pid for stat in procs.process_table().values() if stat.ppid == pid]
    call = main(waits(site, pid, "write"), pid)
    assert (call.peers, call.peers_known) == ((pid, child), True)


def test_an_end_that_is_on_its_way_to_somebody_may_still_write(site, start):
    text = (
        "import array, os, socket\nr, w = os.pipe()\nchild = os.fork()\n"
        "ends = socket.socketpair()\n"
        "ends[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [w]))])\n"
        "print('up', flush=True) if child else None\nos.read(r, 1)"
    )
    pid = start(text)
    call = main(waits(site, pid, "read"), pid)
    assert (len(call.peers), call.peers_known) == (2, False)


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


def test_a_terminal_that_is_read_is_told(site, start):
    pid = start("import os, pty; ours, other = pty.openpty(); print('up', flush=True); os.read(other, 1)")
    call = main(waits(site, pid, "read"), pid)
    assert (call.terminal, call.peers_known) == (True, False)


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


def test_a_receive_at_a_socket_with_a_limit_of_time_comes_back_by_itself(site, start):
    """Its system call says nothing of SO_RCVTIMEO."""
    text = "import socket, struct; one, other = socket.socketpair(); %sprint('up', flush=True); one.recv(9)"
    limit = "one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 300, 0)); "
    for option, timed in (("", False), (limit, True)):
        pid = start(text % option)
        call = main(waits(site, pid, "read"), pid)
        assert (call.timed, call.doubt) == (timed, "")


def test_a_receive_whose_limit_cannot_be_asked_may_have_one(site, start, monkeypatch):
    def refused(number, *arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(wait_limits, "_syscall", refused)
    pid = start("import socket; one, other = socket.socketpair(); print('up', flush=True); one.recv(9)")
    timed, doubt = wait_limits.of_receive(pid, 3)
    assert timed and "Operation not permitted" in doubt


def test_only_of_pythons_is_a_handler_for_the_interrupt_nothing_to_wait_for(start):
    shell = "import os; os.execvp('sh', ['sh', '-c', 'trap : INT; echo up; sleep 60; :'])"
    assert 2 in calls.caught(start(shell))
    assert calls.caught(start("print('up', flush=True); input()")) == []


ALARMS = "import signal, time; %s; print('up', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("text", "quiet", "alarm"),
    [
        ("signal.alarm(50)", False, None),
        ("0", True, False),
        ("signal.signal(signal.SIGALRM, signal.SIG_IGN)", False, False),
        ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (600, 600))", True, True),
    ],
    ids=["set", "none on the host", "ignored", "so much CPU time"],
)
def test_whether_an_alarm_may_end_a_process(start, text, quiet, alarm):
    assert wait_limits.alarm_of(start(ALARMS % text), quiet) is alarm


def test_an_alarm_of_anybody_is_in_the_list_of_timers(start):
    if not (procs.read_bytes("/proc/timer_list", 64) or b"").startswith(b"Timer List"):
        pytest.skip("the kernel's timers are not ours to read")
    start(ALARMS % "signal.alarm(50)")
    assert not wait_limits.no_alarms()


MUTEX = """
import ctypes, threading
libc, room = ctypes.CDLL(None), ctypes.create_string_buffer(64)
assert libc.pthread_mutex_init(room, None) == 0 and libc.pthread_mutex_lock(room) == 0
print('up', threading.get_native_id(), flush=True)
libc.pthread_mutex_lock(room)
"""


def test_the_owner_of_a_mutex_of_the_c_library_is_named(site, start):
    pid = start(MUTEX)
    assert main(waits(site, pid, "futex"), pid).owner == pid


def test_a_lock_of_python_has_no_owner(site, start):
    pid = start("import threading; one = threading.Lock(); one.acquire(); print('up', flush=True); one.acquire()")
    assert main(waits(site, pid, "futex"), pid).owner is None


SHARES = """
import mmap, os, threading
ring = mmap.mmap(-1, 4096)
with open('flag', 'w+b') as file:
    file.write(bytes(4096))
    file.flush()
    flag = mmap.mmap(file.fileno(), 4096)
child = os.fork()
if child == 0:
    threading.Event().wait()
print('up', flush=True)
threading.Event().wait()
"""


def test_memory_that_a_process_shares_is_named_with_whoever_else_has_it(site, start):
    pid = start(SHARES)
    shared = {}

    def all_are_asked():  # whatever begins on the host at that moment cannot be, until it has
        found = waits(site, pid, "futex")
        shared.update({one.name.rpartition("/")[2]: one for one in found[pid].shared}, others=set(found) - {pid})
        return shared["zero (deleted)"].known

    until(all_are_asked, 20)
    assert set(shared["zero (deleted)"].pids) == shared["others"] and len(shared["others"]) == 1
    assert not shared["flag"].known  # anybody may open a file


POLLS = """
import os, select, time
(first, left), (second, right), poll = os.pipe(), os.pipe(), select.poll()
if os.fork() == 0:
    os.close(right)
    time.sleep(99)
if os.fork() == 0:
    os.close(left)
    time.sleep(99)
os.close(left)
os.close(right)
os.mkfifo(str(os.getpid()))
for fd in (first, second%s):
    poll.register(fd, select.POLLIN)
print('up', flush=True)
poll.poll(%s)
"""


def test_a_poll_ends_when_one_of_its_pipes_can_be_read(site, start):
    pid = start(POLLS % ("", ""))
    children = tuple(sorted(stat.pid for stat in procs.process_table().values() if stat.ppid == pid))
    call = main(waits(site, pid, "poll"), pid)
    assert (call.peers, call.peers_known, call.timed) == (children, True, False)


def test_a_poll_with_a_limit_comes_back_and_one_with_a_fifo_may(site, start):
    limited, fifo = start(POLLS % ("", 99_000)), start(POLLS % (", os.open(str(os.getpid()), os.O_RDWR)", ""))
    assert main(waits(site, limited, "poll"), limited).timed
    assert not main(waits(site, fifo, "poll"), fifo).peers_known
