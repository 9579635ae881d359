"""A full look: what a server's processes have open, with whom they are connected, what they wait for. All with real processes."""

import os
import signal
import socket
import subprocess
import sys
import time

import msgspec
import pytest
from keeper_kit import Site, until

from runbook.model.sample import Absent, Blind, Sample, Seen
from runbook.onhost import procs


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def start(tmp_path):
    """Start a Python program that nobody launched through a keeper; it says `up` when it is ready."""
    started = []

    def begin(text, **spec):
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True, **spec
        )
        started.append(process)
        process.first = process.stdout.readline()
        assert process.first.startswith("up")
        return process

    yield begin
    for process in started:
        for stat in procs.process_table().values():
            if stat.sid == process.pid:
                os.kill(stat.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(autouse=True)
def every_look_is_complete(monkeypatch):
    """Looks follow one another without the pause that keeps the search among foreign processes cheap."""
    monkeypatch.setattr("runbook.onhost.descriptors.REST", 0)


def look(site, pid, **spec):
    args = {"run": None, "pid": pid, "start": procs.start_ticks(pid), "threads": True, "full": True, **spec}
    return msgspec.convert(site.op("sample", **args), Sample)


def main_of(found, pid):
    return next(process for process in found.processes.value if process.pid == pid)


def test_offset_and_size_of_a_file_that_is_read(site, start, tmp_path):
    (tmp_path / "shard.bin").write_bytes(bytes(1 << 20))
    process = start("import sys, time\nf = open('shard.bin', 'rb', 0)\nf.read(4096)\nprint('up', flush=True)\nf.read(8192)\ntime.sleep(60)")
    rows = until(lambda: [row for row in main_of(look(site, process.pid), process.pid).files.value if row.offset == 12288])
    assert [(row.path, row.size, row.writing) for row in rows] == [(str(tmp_path / "shard.bin"), 1 << 20, False)]


def test_pread_moves_io_and_leaves_the_offset(site, start, tmp_path):
    (tmp_path / "shard.bin").write_bytes(bytes(1 << 20))
    text = "import os, sys\nf = os.open('shard.bin', 0)\nprint('up', flush=True)\nsys.stdin.read(1)\nos.pread(f, 1 << 19, 0)\nsys.stdin.read(1)"
    process = start(text, stdin=subprocess.PIPE)
    before = main_of(look(site, process.pid), process.pid)
    process.stdin.write("go"[:1])
    process.stdin.flush()

    def after():
        row = main_of(look(site, process.pid), process.pid)
        return row if row.io.value.rchar - before.io.value.rchar >= 1 << 19 else None

    assert [row.offset for row in until(after).files.value] == [0]


def test_a_full_pipe_shows_its_fill_and_who_should_read_it(site, start):
    text = """
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    time.sleep(60)
os.close(r)
os.set_blocking(w, False)
try:
    while True: os.write(w, bytes(4096))
except BlockingIOError: pass
os.set_blocking(w, True)
print('up', w, flush=True)
os.write(w, b'more')
"""
    process = start(text)
    found = until(lambda: (lambda found: found if len(found.processes.value) == 2 else None)(look(site, process.pid)))
    [reader] = [row.pid for row in found.processes.value if row.pid != process.pid]
    [end] = [end for end in main_of(found, process.pid).pipes.value if end.end == "write" and end.fill]
    assert (end.fill, end.peers, end.peers_known) == (end.capacity, (reader,), True)
    assert any(end.peers == (process.pid,) and end.end == "read" for end in main_of(found, reader).pipes.value)


def test_a_pipe_that_nobody_reads_has_no_peer(site, start):
    process = start("import os, time\nr, w = os.pipe()\nos.write(w, b'x')\nos.close(r)\nprint('up', w, flush=True)\ntime.sleep(60)")
    found = main_of(look(site, process.pid), process.pid)
    [end] = [end for end in found.pipes.value if end.fd not in (0, 1, 2)]
    assert (end.end, end.fill, end.peers, end.peers_known) == ("write", 1, (), True)


def test_asking_a_pipe_wakes_nobody_who_waits_on_it(site, start):
    process = start("import os\nr, w = os.pipe()\nprint('up', flush=True)\nos.read(r, 1)")
    before = until(lambda: settled(site, process.pid))
    assert look(site, process.pid) and look(site, process.pid)
    assert main_of(look(site, process.pid), process.pid).threads == before.threads


def settled(site, pid):
    """Its row once its threads rest."""
    first = main_of(look(site, pid), pid)
    time.sleep(0.1)
    second = main_of(look(site, pid), pid)
    return second if first.threads == second.threads else None


@pytest.mark.parametrize("kind", ["null", "file", "pipe", "socket", "closed"])
def test_what_stdin_is(site, start, tmp_path, kind):
    (tmp_path / "in.txt").write_text("x")
    ours, theirs = socket.socketpair()
    given = {"null": subprocess.DEVNULL, "pipe": subprocess.PIPE, "socket": theirs, "file": open(tmp_path / "in.txt"), "closed": None}[kind]  # noqa: SIM115
    text = "import os, time\n" + ("os.close(0)\n" if kind == "closed" else "") + "print('up', flush=True)\ntime.sleep(60)"
    process = start(text, stdin=given)
    assert main_of(look(site, process.pid), process.pid).stdin == kind
    ours.close()
    theirs.close()


PEER = """
import socket, sys, time
s = socket.create_server(('127.0.0.1', 0))
print('up', s.getsockname()[1], flush=True)
c, _ = s.accept()
for line in sys.stdin:
    c.sendall(bytes(100_000))
"""
CLIENT = """
import socket, sys
c = socket.create_connection(('127.0.0.1', int(sys.argv[1]) if len(sys.argv) > 1 else PORT))
print('up', flush=True)
while c.recv(65536): pass
"""


@pytest.mark.slow
def test_a_peer_that_sends_moves_what_was_received_and_a_quiet_one_does_not(site, tmp_path):
    peer = subprocess.Popen([sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(peer.stdout.readline().split()[1])
    client = subprocess.Popen([sys.executable, "-c", CLIENT.replace("PORT", str(port))], stdout=subprocess.PIPE, text=True)
    client.stdout.readline()

    def row():
        [found] = look(site, client.pid).sockets.value
        return found

    try:
        first = row()
        assert (first.state, first.peer, first.received) == ("ESTAB", f"127.0.0.1:{port}", 0)
        assert first.peer_pid == peer.pid
        assert [one.pid for one in look(site, client.pid).peers.value] == [peer.pid]
        quiet = until(lambda: (lambda found: found if found.quiet_s >= 0.2 else None)(row()))
        assert quiet.received == 0
        peer.stdin.write("send\n")
        peer.stdin.flush()
        moved = until(lambda: (lambda found: found if found.received == 100_000 else None)(row()))
        assert moved.quiet_s < 5
    finally:
        for process in (peer, client):
            process.kill()
            process.communicate()


def test_a_new_process_at_the_other_end_is_found_while_the_search_rests(site, start, monkeypatch):
    monkeypatch.setattr("runbook.onhost.descriptors.REST", 10**9)
    peer = start(PEER, stdin=subprocess.PIPE)
    look(site, peer.pid)
    client = start(CLIENT.replace("PORT", peer.first.split()[1]))
    assert until(lambda: [row for row in look(site, peer.pid).sockets.value if row.peer_pid == client.pid])


def test_a_cheap_look_sees_a_process_stop(site, start):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    states = []
    for number, state in ((signal.SIGCONT, "S"), (signal.SIGSTOP, "T"), (signal.SIGCONT, "S")):
        os.kill(process.pid, number)
        until(lambda state=state: procs.read_stat(process.pid).state == state)
        row = main_of(look(site, process.pid, full=False), process.pid)
        states.append((row.state, row.threads[0].state))
    assert states == [("S", "S"), ("T", "T"), ("S", "S")]


LOCKER = """
import fcntl, os, sys
f = open(sys.argv[1] if len(sys.argv) > 1 else 'a.lock', 'w')
print('up', flush=True)
fcntl.CALL(f, fcntl.LOCK_EX)
print('got', flush=True)
import time; time.sleep(60)
"""


@pytest.mark.parametrize("kind, call", [("flock", "flock"), ("posix", "lockf")])
def test_who_waits_for_a_lock_and_who_holds_it_are_named(site, start, tmp_path, kind, call):
    holder = start(LOCKER.replace("CALL", call))
    assert holder.stdout.readline() == "got\n"
    waiter = start(LOCKER.replace("CALL", call))

    def row():
        return next((lock for lock in look(site, waiter.pid).locks.value if lock.kind == kind and lock.waiters), None)

    lock = until(row)
    assert (lock.path, lock.waiters, lock.holder, lock.holder_known) == (str(tmp_path / "a.lock"), (waiter.pid,), holder.pid, True)
    assert [one.pid for one in look(site, waiter.pid).peers.value if one.pid == holder.pid] == [holder.pid]


@pytest.mark.parametrize("collected", [True, False])
def test_a_lock_that_a_child_inherited_is_held_by_the_child(site, start, collected):
    text = """
import fcntl, os, time
f = open('a.lock', 'w')
fcntl.flock(f, fcntl.LOCK_EX)
if os.fork() == 0:
    time.sleep(60)
print('up', flush=True)
os._exit(0)
"""
    parent = start(text)
    until(lambda: procs.read_stat(parent.pid).state == "Z")
    if collected:
        parent.wait(10)
    waiter = start(LOCKER.replace("CALL", "flock"))
    child = next(stat.pid for stat in procs.process_table().values() if stat.sid == parent.pid != stat.pid)
    lock = until(lambda: next((lock for lock in look(site, waiter.pid).locks.value if lock.waiters), None))
    assert (lock.holder, lock.holder_known) == (child, True)


def test_a_lock_that_its_taker_handed_to_a_daemon_is_held_by_the_daemon(site, start, tmp_path):
    taker = start("""
import fcntl, os, time
f = os.open('a.lock', os.O_CREAT | os.O_RDWR)
fcntl.flock(f, fcntl.LOCK_EX)
if os.fork():
    os.close(f)
    print('up', flush=True)
time.sleep(60)
""")
    waiter = start(LOCKER.replace("CALL", "flock"))
    daemon = next(stat.pid for stat in procs.process_table().values() if stat.sid == taker.pid != stat.pid)
    lock = until(lambda: next((lock for lock in look(site, waiter.pid).locks.value if lock.waiters), None))
    assert (lock.holder, lock.opened_by, lock.opened_known) == (daemon, tuple(sorted((waiter.pid, daemon))), True)


def test_a_lock_file_without_holder_shows_its_age(site, start, tmp_path):
    path = tmp_path / "ext" / "lock"
    path.parent.mkdir()
    path.touch()
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    process = start("import time; print('up', flush=True); time.sleep(60)")
    [lock] = [lock for lock in look(site, process.pid, folders=[str(path.parent)]).locks.value if lock.kind == "file"]
    assert (lock.path, lock.holder, lock.holder_known) == (str(path), None, True)
    assert 3590 < lock.age_s < 3700


def test_a_folder_that_grows_and_one_that_is_not_there_yet(site, start, tmp_path):
    (tmp_path / "cache" / "sub").mkdir(parents=True)
    process = start("import time; print('up', flush=True); time.sleep(60)")
    folders = [str(tmp_path / "cache"), str(tmp_path / "none")]
    first, none = look(site, process.pid, folders=folders).folders.value
    (tmp_path / "cache" / "sub" / "kernel.o").write_bytes(bytes(1000))
    grown, _ = look(site, process.pid, folders=folders).folders.value
    assert (first.files, first.bytes, none.files, none.newest_s) == (0, 0, 0, None)
    assert (grown.files, grown.bytes) == (1, 1000) and grown.newest_s < 60


def test_a_folder_too_large_to_be_walked_is_blind(site, start, tmp_path, monkeypatch):
    monkeypatch.setattr("runbook.onhost.folders.MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}").touch()
    process = start("import time; print('up', flush=True); time.sleep(60)")
    found = look(site, process.pid, folders=[str(tmp_path)]).folders
    assert found == Blind(f"{tmp_path}: more than 3 files")


def test_the_disk_of_the_log_is_seen(site, start, tmp_path):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    log = tmp_path / "server.log"
    rows = look(site, process.pid, log={"path": str(log)}).disks.value
    room = os.statvfs(tmp_path)
    assert rows[0].path == str(tmp_path) and rows[0].total == room.f_blocks * room.f_frsize


def test_a_zombie_says_how_it_ended(site, start):
    process = start(
        "import os, time\nos.fork() or os._exit(7)\nos.fork() or os.kill(os.getpid(), 9)\nprint('up', flush=True)\ntime.sleep(60)"
    )

    def codes():
        rows = [row for row in look(site, process.pid).processes.value if row.state == "Z"]
        return sorted(row.exit_code for row in rows) if len(rows) == 2 else None

    assert until(codes) == [-9, 7]


def test_memory_and_faults_are_counted(site, start):
    process = start("import time\nx = bytearray(8 << 20)\nprint('up', flush=True)\ntime.sleep(60)")
    row = main_of(look(site, process.pid), process.pid)
    assert row.faults > 2000 and (row.locked, row.shared) == (0, row.shared)


def test_the_kernel_log_answers_or_says_why_not(site, start):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    found = look(site, process.pid, kernel=True).kernel
    assert isinstance(found, (Seen, Absent)) or "not permitted" in found.reason or "/dev/kmsg" in found.reason


def test_a_cheap_look_leaves_the_costly_sources_alone(site, start):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    found = look(site, process.pid, full=False)
    row = main_of(found, process.pid)
    assert isinstance(row.io, Seen) and row.threads
    assert {found.sockets, found.locks, found.disks, found.peers} == {Blind("not asked")}
    assert {row.files, row.pipes, row.mapped_weights} == {Blind("not sampled")}


def test_a_gpu_tool_that_is_under_way_is_seen_whoever_started_it(site, start, tmp_path):
    process = start("import time; print('up', flush=True); time.sleep(60)")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho up\nread x\n")
    tool.chmod(0o755)
    with subprocess.Popen([str(tool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        until(lambda: procs.read_stat(running.pid).state == "S", 10)
        found = look(site, process.pid, full=False).gpu_tool.value
        running.stdin.close()
    assert (found.pid, found.state) == (running.pid, "S") and found.age_s < 60
    after = look(site, process.pid, full=False).gpu_tool
    assert isinstance(after, Absent) or after.value.pid != running.pid
