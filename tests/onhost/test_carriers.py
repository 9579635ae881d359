"""Threads that only carry what ranks send, told from native ones that wait in the same system call. All with real processes."""

import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest
from keeper_kit import Site, until

from runbook.model.sample import Sample, Seen
from runbook.onhost import calls, procs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not calls._NAMES, reason="no table for this machine")]

LOOP = """
import ctypes, os, select, socket, sys, threading, time
name, watched, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None)
listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    far = socket.create_connection(listener.getsockname())
    listener.close()
    time.sleep(99)
near, _ = listener.accept()
inlet, outlet = os.pipe()
ends = {"ranks": [near, listener, inlet, libc.eventfd(0, 0)], "timer": [near, libc.timerfd_create(1, 0)]}
pair = socket.socketpair()
ends["unix"] = [near, pair[0]]
ends["outside"] = ends["us"] = [near, socket.create_connection(("127.0.0.1", port))]
def run():
    libc.prctl(15, name.encode(), 0, 0, 0)
    loop = select.epoll()
    for end in ends[watched]:
        loop.register(end, select.EPOLLIN)
    print("up", child, flush=True)
    while True:
        loop.poll(0.5 if watched == "ranks" else None)
threading.Thread(target=run, daemon=True).start()
threading.Event().wait()
"""

ELSEWHERE = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
kept = listener.accept()
input()
"""


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / "state")
    yield found
    found.close()


def carriers(site, name, watched):
    """What is said of the loop: (its name and whom it hears), and the pids of the process and its child."""
    away = subprocess.Popen([sys.executable, "-c", ELSEWHERE], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    with away, socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1] if watched == "us" else int(away.stdout.readline())
        with subprocess.Popen(
            [sys.executable, "-c", LOOP, name, watched, str(port)], stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                child = int(process.stdout.readline().split()[1])
                kept = here.accept() if watched == "us" else ()
                args = {"pid": process.pid, "start": procs.start_ticks(process.pid), "threads": True, "full": True, "calls": True}
                loop = next(int(tid) for tid in os.listdir(f"/proc/{process.pid}/task") if int(tid) != process.pid)
                until(lambda: b"poll" in (procs.read_bytes(f"/proc/{process.pid}/task/{loop}/wchan") or b""), 10)
                outcome = msgspec.convert(site.op("sample", run=None, **args), Sample).calls
                assert isinstance(outcome, Seen), outcome
                threads = next(one.threads for one in outcome.value if one.pid == process.pid)
                return [(one.carries, one.peers) for one in threads if one.tid == loop], process.pid, child
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                away.kill()
                for one in kept[:1]:
                    one.close()


@pytest.mark.parametrize("name", ["gloo_tcp_loop", "pt_tcpstore_uv"])
@pytest.mark.parametrize("watched", ["ranks", "us"])
def test_a_loop_of_the_library_carries_what_the_processes_at_its_connections_send(site, name, watched):
    """A question of ours at its port brings it nothing."""
    found, mine, child = carriers(site, name, watched)
    assert found == [(name, tuple(sorted((mine, child) if watched == "ranks" else (child,))))]


@pytest.mark.parametrize(("name", "watched"), [("python", "ranks"), *(("gloo_tcp_loop", one) for one in ("timer", "unix", "outside"))])
def test_a_loop_of_another_library_or_one_that_watches_more_may_wake_anybody(site, name, watched):
    found, mine, child = carriers(site, name, watched)
    assert found == [("", ())] or (watched == "outside" and not set(found[0][1]) <= {mine, child})
