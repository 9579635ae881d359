"""Looks at what is broken, huge or gone: each is answered, in bounded time, with a reason where nothing could be seen."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest
from keeper_kit import until

from runbook.model.sample import Absent, Blind, Sample, Seen
from runbook.onhost import careful, kernel_log, log_gain, pipes, procs, sampler, sock_diag, sockets, thread_look
from runbook.onhost.descriptors import READS, Descriptor

CTX = SimpleNamespace(state_dir="/nonexistent", scope=None)


def look(pid, **spec):
    args = {"pid": pid, "start": procs.start_ticks(pid), "threads": True, "full": True, **spec}
    return msgspec.convert(sampler.sample(CTX, args, b"")[0], Sample)


@pytest.fixture
def start():
    started = []

    def begin(text):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        for stat in procs.process_table().values():
            if stat.sid == process.pid:
                os.kill(stat.pid, signal.SIGKILL)
        process.communicate()


def test_a_process_that_waits_in_the_kernel_is_looked_at_without_waiting_for_it(start):
    """The parent of a vfork is in D state until its child is done with its memory."""
    process = start("import ctypes\nprint('up', flush=True)\nlibc = ctypes.CDLL(None)\nlibc.vfork() or libc.pause()")
    until(lambda: procs.read_stat(process.pid).state == "D")
    began = time.monotonic()
    row = next(row for row in look(process.pid).processes.value if row.pid == process.pid)
    assert (row.state, row.threads[0].state, row.threads[0].wchan) == ("D", "D", "kernel_clone")
    assert isinstance(row.io, Seen) and isinstance(row.files, Seen)
    assert time.monotonic() - began < 2


def test_a_read_that_never_returns_costs_one_thread_however_often_it_is_asked():
    release, calls = threading.Event(), []

    def block():
        calls.append(1)
        release.wait()

    with pytest.raises(careful.Stuck):
        careful.read("never", block, 0.05)
    began = time.monotonic()
    for _ in range(5):
        with pytest.raises(careful.Stuck) as problem:
            careful.read("never", block, 0.05)
    assert time.monotonic() - began < 1 and len(calls) == 1 and "no answer for" in str(problem.value)
    release.set()
    until(lambda: careful._stuck["never"].over.is_set())
    assert careful.read("never", lambda: 7) == 7


def test_two_who_read_the_same_at_once_both_get_it():
    begun, release, found = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        return release.wait(5)

    first = threading.Thread(target=lambda: found.append(careful.read("same", slow, 5)))
    first.start()
    begun.wait(5)
    second = threading.Thread(target=lambda: found.append(careful.read("same", slow, 5)))
    second.start()
    release.set()
    first.join()
    second.join()
    assert found == [True, True]


def test_what_a_careful_read_raises_is_raised():
    with pytest.raises(FileNotFoundError):
        careful.read("gone", lambda: os.stat("/nonexistent"))


def test_a_pid_that_is_gone_or_anothers_by_now_is_absent():
    process = subprocess.Popen(["sleep", "60"])
    start = procs.start_ticks(process.pid)
    try:
        other = msgspec.convert(sampler.sample(CTX, {"pid": process.pid, "start": start - 5, "full": True}, b"")[0], Sample)
    finally:
        process.kill()
        process.wait()
    gone = msgspec.convert(sampler.sample(CTX, {"pid": process.pid, "start": start, "full": True}, b"")[0], Sample)
    for found in (other, gone):
        assert isinstance(found.processes, Absent) and isinstance(found.exit, Blind)


def test_more_descriptors_than_are_read_are_blind_not_a_part(start, monkeypatch):
    monkeypatch.setattr("runbook.onhost.descriptors.MOST_DESCRIPTORS", 8)
    process = start("import os\nends = [os.pipe() for _ in range(9)]\nprint('up', flush=True)\nos.read(ends[0][0], 1)")
    [row] = look(process.pid).processes.value
    assert row.files == row.pipes == Blind(f"/proc/{process.pid}/fd: it has more than 8 descriptors open")


def test_an_orphan_of_the_group_belongs_to_the_server_and_what_its_shell_started_beside_it_does_not():
    """As with `server | tee log &`: one group, led by the server."""
    text = """
import os, signal
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        if os.fork() == 0: signal.pause()
        os._exit(0)
    print(os.getpid(), flush=True)
    signal.pause()
pid = int(input())
if os.fork() == 0:
    os.setpgid(0, pid)
    print("beside", os.getpid(), flush=True)
signal.pause()
"""
    shell = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        pid = int(shell.stdout.readline())
        shell.stdin.write(f"{pid}\n")
        shell.stdin.flush()
        beside = int(shell.stdout.readline().split()[1])

        def settled():
            rows = [row for row in look(pid, full=False).processes.value if row.state != "Z"]
            return rows if len(rows) == 2 and all(row.ppid not in (shell.pid, pid) or row.pid == pid for row in rows) else None

        assert beside not in {row.pid for row in until(settled)}
    finally:
        for stat in procs.process_table().values():
            if stat.sid == shell.pid:
                os.kill(stat.pid, signal.SIGKILL)
        shell.communicate()


def test_a_zombie_has_nothing_open():
    process = subprocess.Popen(["true"])
    until(lambda: procs.read_stat(process.pid).state == "Z")
    [row] = look(process.pid).processes.value
    process.wait()
    assert (row.state, row.exit_code, row.stdin) == ("Z", 0, "")
    assert all(isinstance(getattr(row, name), Absent) for name in ("files", "pipes", "mapped_weights"))


@pytest.mark.slow
def test_a_thousand_children_are_looked_at_in_bounded_time(start):
    process = start(
        "import os, signal\nfor _ in range(1000):\n    if os.fork() == 0: signal.pause()\nprint('up', flush=True)\nsignal.pause()"
    )
    began = time.monotonic()
    found = look(process.pid)
    assert (len(found.processes.value), found.left_out) == (sampler.MOST_PROCESSES, 501)
    assert any(row.pid == process.pid for row in found.processes.value)
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_two_thousand_threads_are_read_whole(start):
    process = start(
        "import threading\nstop = threading.Event()\nthreading.stack_size(65536)\n"
        "for _ in range(2000): threading.Thread(target=stop.wait, daemon=True).start()\nprint('up', flush=True)\nstop.wait()"
    )
    began = time.monotonic()
    [row] = look(process.pid, full=False).processes.value
    assert len(row.threads) == thread_look.MOST_THREADS and row.threads[0].tid == process.pid
    assert time.monotonic() - began < 3


def test_threads_of_a_kernel_without_schedstat_still_move(start, monkeypatch):
    monkeypatch.setattr(thread_look, "keeps_clocks", lambda: False)
    process = start("import time\nprint('up', flush=True)\nwhile True: time.sleep(0.001)")
    threads = thread_look.Threads(process.pid)
    first = threads.look(thread_look.Room(), 1)
    assert until(lambda: threads.look(thread_look.Room(), 1)[0]["switches"] > first[0]["switches"])


def test_a_thread_that_took_anothers_place_is_seen_though_there_are_as_many(start):
    text = """
import signal, threading, time
stop = threading.Event()
first = threading.Thread(target=stop.wait)
first.start()
def turn(*_):
    stop.set()
    first.join()
    threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.signal(signal.SIGUSR1, turn)
print("up", flush=True)
while True: signal.pause()
"""
    process = start(text)
    threads, room = thread_look.Threads(process.pid), thread_look.Room()
    before = [row["tid"] for row in threads.look(room, 2)]
    os.kill(process.pid, signal.SIGUSR1)
    after = until(lambda: (lambda rows: rows if len(rows) == 2 and rows[1]["tid"] != before[1] else None)(threads.look(room, 2)))
    assert before[0] == after[0]["tid"] == process.pid


def test_without_room_for_open_descriptors_threads_are_read_all_the_same(start):
    process = start("import time\nprint('up', flush=True)\nwhile True: time.sleep(0.001)")
    threads, none = thread_look.Threads(process.pid), thread_look.Room()
    none.left = 0
    first = threads.look(none, 1)
    assert until(lambda: threads.look(none, 1)[0]["run_ns"] > first[0]["run_ns"])


def test_descriptors_of_threads_are_given_back(start):
    process = start("import time\nprint('up', flush=True)\ntime.sleep(60)")
    room = thread_look.Room()
    threads, before = thread_look.Threads(process.pid), room.left
    threads.look(room, 1)
    assert room.left == before - 1
    process.kill()
    process.wait()
    assert threads.look(room, 1) == [] and room.left == before


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_log_that_is_no_file_is_blind(tmp_path, kind):
    path = tmp_path / "log"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert log_gain.gain({"path": str(path)}) == {"type": "blind", "reason": f"log {path}: not a regular file"}


def test_a_binary_log_gives_short_lines_of_text(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1 << 16) + b"\n")
    lines = log_gain.gain({"path": str(path)})["value"]["lines"]
    assert 0 < len(lines) <= log_gain.MOST_LINES and max(map(len, lines)) <= log_gain.MOST_LINE


def test_a_log_cut_under_its_writer_begins_with_a_hole(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as out:
        out.seek(1 << 20)
        out.write(b"after the cut\n")
    assert log_gain.gain({"path": str(path)})["value"]["lines"] == ["after the cut"]


def test_one_line_of_a_gigabyte_is_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(log_gain, "MOST_READ", 1 << 20)
    path = tmp_path / "log"
    with path.open("wb") as out:
        out.truncate(1 << 30)
    began = time.monotonic()
    found = log_gain.gain({"path": str(path)})["value"]
    assert (found["end"], found["size"]) == (log_gain.MOST_READ, 1 << 30)
    assert time.monotonic() - began < 1


def test_a_pipe_that_is_gone_has_no_figures():
    end = pipes.ask(os.getpid(), Descriptor(999, "pipe:[1]", READS))
    assert (end.fill, end.capacity, end.alone) == (None, None, None)


def test_connections_without_netlink_have_no_counters(monkeypatch):
    def refuse():
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(sock_diag, "connections", refuse)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer = f"127.0.0.1:{server.getsockname()[1]}"
        found = [one for one in sockets._connections({os.getpid()}) if one.peer == peer]
        assert [(one.state, one.inode, one.received) for one in found] == [("ESTAB", os.fstat(client.fileno()).st_ino, None)]


@pytest.mark.parametrize(
    "raw, text",
    [
        (b"4,1,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n SUBSYSTEM=pci\n", "NVRM: Xid"),
        (b"3,2,5000000,-;INFO: task python:77 blocked for more than 122 seconds.\n", "INFO: task python:77 blocked"),
        (b"6,3,5000000,-;usb 1-1: new device\n", None),
        (b"nonsense", None),
    ],
)
def test_only_telling_lines_of_the_kernel_are_kept(raw, text):
    found = kernel_log.parse(raw)
    assert found is None if text is None else (found.at == 5.0 and found.text.startswith(text) and "SUBSYSTEM" not in found.text)


def test_a_kernel_log_that_cannot_be_read_says_why(tmp_path):
    assert kernel_log.KernelLog(str(tmp_path / "none")).since(0)["reason"].endswith("No such file or directory")


def test_what_is_damaged_of_one_run_does_not_stop_the_others_and_the_doctor_names_it(local_host, own_state):
    state = own_state / "runbook-host"
    for run, file in (("r1", "undo/taps/record.json"), ("r2", f"lease-{os.uname().nodename}.json"), ("r3", "keeper.json"), (".odd", "x")):
        path = state / "runs" / run / file
        path.parent.mkdir(parents=True)
        path.write_text("{ damaged")
    (state / "runs" / "r3" / f"lease-{os.uname().nodename}.json").write_text('{"format": 1, "run": "r3"}')
    (state / "runs" / "a_file").touch()
    assert local_host.take_lease("mine", "me@laptop", 60.0) == () and local_host.open_patches() == ()
    rows = {row.run: row.problem for row in local_host.examine().runs}
    assert sorted(rows) == ["mine", "r1", "r2", "r3"]
    assert all("is not JSON" in rows[run] for run in ("r1", "r2", "r3")) and rows["mine"] == ""


def test_a_state_folder_that_is_a_file_is_a_finding(own_state, local_host):
    (own_state / "runbook-host").touch()
    assert "no folder" in local_host.examine().state.problem
