"""One sample of a server: what is seen, what is absent, and what could not be looked at, told apart."""

import mmap
import os
import signal
import socket
import subprocess
import sys
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keeper_kit import Site, until

from runbook.model.sample import Absent, Blind, ExitSample, Sample, Seen
from runbook.onhost import log_gain, process_look, procs
from runbook.onhost import mapped as mapped_files

TREE = """
import os, sys, time
for rank in range(3):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write("sched_TP%d" % rank)
        if rank == 2 and os.fork() == 0:
            os.setsid()
            print("daemon", os.getpid(), flush=True)
            time.sleep(60)
        if rank == 2:
            os._exit(0)
        time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / "state")
    yield found
    found.close()


def sample(site, state=None, **spec):
    if state is not None:
        spec = {"server": state["id"], "pid": state["pid"], "start": state["start"], **spec}
    return msgspec.convert(site.op("sample", **spec), Sample)


@pytest.mark.slow
def test_the_whole_tree_is_seen_with_ranks_bytes_zombies_and_daemons(site):
    state = site.python("server", TREE)
    daemon = int(until(lambda: site.log("server")).split()[1])

    def shape():
        processes = sample(site, state, full=True).processes.value
        named = sorted(item.title for item in processes if item.title.startswith("sched_TP") and item.state != "Z")
        settled = named == ["sched_TP0", "sched_TP1", "sched_TP2"] and any(item.state == "Z" for item in processes)
        return processes if settled else None

    processes = {item.pid: item for item in until(shape)}
    assert processes[daemon].ppid == site.keeper()["pid"]
    assert sorted(item.rank for item in processes.values() if item.state != "Z" and item.pid != state["pid"]) == [0, 1, 2]
    assert sum(item.state == "Z" for item in processes.values()) == 1
    main = processes[state["pid"]]
    assert main.io.value.rchar > 0 and main.rss > 1 << 20
    assert isinstance(main.mapped_weights, Absent)
    assert main.threads == ()
    zombie = next(item for item in processes.values() if item.state == "Z")
    assert isinstance(zombie.mapped_weights, (Blind, Absent))


@pytest.mark.slow
def test_threads_show_whether_they_ran(site):
    state = site.python(
        "server", "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(1, flush=True)\nwhile True: pass"
    )
    until(lambda: site.log("server"))

    def pair():
        """Two looks between which the sleeping thread did not run: at first it may still be on its way to sleep."""
        (first,), (second,) = [(sample(site, state, threads=True).processes.value, time.sleep(0.1))[0] for _ in range(2)]
        still = len(first.threads) == len(second.threads) == 2 and first.threads[1] == second.threads[1]
        return (first, second) if still else None

    first, second = until(pair)
    assert second.threads[0].run_ns > first.threads[0].run_ns
    assert (second.threads[1].state, second.threads[0].tid) == ("S", state["pid"])


def test_mapped_weights_count_resident_bytes_only(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_files, "REST", 0)
    file = tmp_path / "model-00001.safetensors"
    file.write_bytes(bytes(4 << 20))
    with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        weights = mapped_files.Weights(os.getpid())
        before = weights.read(0, 0, 0)["value"]
        assert before < 4 << 20
        sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
        assert until(lambda: (lambda found: found if found["type"] == "seen" else None)(weights.read(1, 0, 0))) == {
            "type": "seen",
            "value": 4 << 20,
        }


def test_smaps_of_other_files_do_not_count():
    smaps = b"7f00-7f01 r--p 00000000 08:01 1 /m/a.gguf\nSize: 8 kB\nRss: 4 kB\n7f02-7f03 r--p 0 08:01 2 /lib/x.so\nRss: 99 kB\n"
    assert mapped_files.weight_rss(smaps) == 4096


@pytest.mark.parametrize(
    "title, variable, rank",
    [
        ("sglang::scheduler_TP0", None, 0),
        ("sglang::scheduler_DP0_PP0_TP3_EP3", None, 3),
        ("sglang::scheduler_PP1_TP0", "5", None),
        ("VLLM::Worker_TP1", None, 1),
        ("python3", "2", 2),
        ("python3", None, None),
        ("HTTPD", "x", None),
    ],
)
def test_a_rank_is_read_from_the_title_then_from_the_environment(title, variable, rank):
    assert process_look.rank_of(title, variable) == rank


@pytest.mark.slow
def test_the_size_of_its_group_is_read_from_the_environment_of_a_rank(site):
    state = site.python("server", "import time; time.sleep(60)", env={"RANK": "1", "WORLD_SIZE": "2"})
    main = until(lambda: next((item for item in sample(site, state).processes.value if item.rank is not None), None))
    assert (main.rank, main.world) == (1, 2)


@pytest.mark.slow
def test_exit_is_absent_while_it_lives_and_seen_with_its_cause_after(site):
    state = site.python("server", "input() if False else __import__('time').sleep(60)")
    assert isinstance(sample(site, state).exit, Absent)
    site.op("keeper_note_kill", id="server", by="kill")
    os.kill(state["pid"], signal.SIGTERM)
    found = until(lambda: (lambda s: s if isinstance(s.exit, Seen) else None)(sample(site, state)))
    assert found.exit.value == ExitSample(code=None, signal="SIGTERM", lived_s=found.exit.value.lived_s, killed_by_us=True)
    until(lambda: isinstance(sample(site, state).processes, Absent))


def test_nobody_knows_how_a_server_ended_that_had_no_keeper(site):
    process = subprocess.Popen(["sleep", "60"])
    start = procs.start_ticks(process.pid)
    process.kill()
    process.wait()
    assert isinstance(sample(site, pid=process.pid, start=start).exit, Blind)


def test_what_was_not_asked_stays_blind(site):
    found = sample(site)
    assert all(getattr(found, name) == Blind("not asked") for name in ("processes", "exit", "log", "check", "listeners", "gpus", "link"))
    assert found.boot_id and found.t == found.host_t


@pytest.mark.slow
def test_a_listener_of_the_launch_is_ours_and_a_foreign_one_is_not(site):
    text = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(60)"
    state = site.python("server", text)
    port = int(until(lambda: site.log("server")))
    [row] = sample(site, state, port=port).listeners.value
    assert (row.pid, row.ours, row.address) == (state["pid"], True, f"127.0.0.1:{port}")
    other = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        foreign = int(other.stdout.readline())
        [row] = sample(site, state, port=foreign).listeners.value
        assert (row.pid, row.ours) == (other.pid, False)
    finally:
        other.kill()
        other.communicate()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert isinstance(sample(site, state, port=free.getsockname()[1]).listeners, Absent)


@pytest.mark.slow
def test_a_sample_of_ten_processes_starts_none_and_is_quick(site):
    state = site.python("server", "import os, time\nfor _ in range(9):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(60)")
    until(lambda: len(sample(site, state).processes.value) == 10)
    children = os.times().children_user, len(procs.descendants(os.getpid()))
    costs = []
    for _ in range(15):
        began = time.thread_time()
        site.op("sample", server="server", pid=state["pid"], start=state["start"], log={"path": state["log"], "offset": 0})
        costs.append(time.thread_time() - began)
    assert (os.times().children_user, len(procs.descendants(os.getpid()))) == children
    assert min(costs) < 0.02, costs


class Log:
    """A log that is sampled again and again, as the engine does."""

    def __init__(self, path):
        self.path, self.mark = path, {"path": str(path)}

    def gain(self):
        found = log_gain.gain(self.mark)
        if found["type"] == "seen":
            self.mark = {"path": str(self.path), "inode": found["value"]["inode"], "offset": found["value"]["end"]}
        return found.get("value")


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "server.log")


def append(path, data):
    with open(path, "ab") as out:
        out.write(data)


def test_a_line_is_told_once_it_is_whole(log):
    append(log.path, b"one\ntw")
    assert log.gain()["lines"] == ["one"]
    append(log.path, b"o\r\nloading 10%\rloading 2")
    assert log.gain()["lines"] == ["two", "loading 10%"]
    assert log.gain()["lines"] == []
    append(log.path, b"0%\r")
    assert log.gain()["lines"] == ["loading 20%"]


def test_a_question_without_a_line_end_is_told_when_the_log_stands_still(log):
    append(log.path, b"one\nProceed? [y/N] ")
    assert log.gain()["lines"] == ["one"]
    os.utime(log.path, (time.time() - 2 * log_gain.STILL_S,) * 2)
    assert log.gain()["lines"] == ["Proceed? [y/N] "]
    assert log.gain()["lines"] == [], "it is told once"
    append(log.path, b"y\n")
    assert log.gain()["lines"] == ["y"]


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(log):
    append(log.path, b"one\n")
    log.gain()
    append(log.path, b"two\nlast")
    os.rename(log.path, str(log.path) + ".1")
    append(log.path, b"three\n")
    found = log.gain()
    assert (found["lines"], found["rotated"], found["offset"], found["end"]) == (["two", "last", "three"], True, 0, 6)


def test_a_log_that_was_cut_is_read_from_its_start(log):
    append(log.path, b"a long first line\n")
    log.gain()
    log.path.write_bytes(b"new\n")
    found = log.gain()
    assert (found["lines"], found["rotated"]) == (["new"], True)


def test_a_flood_keeps_its_head_and_tail_and_counts_the_rest(log):
    append(log.path, b"".join(b"line %d\n" % number for number in range(1000)) + b"x" * 5000 + b"\n")
    found = log.gain()
    assert (found["lines"][0], found["lines"][99], len(found["lines"]), found["skipped"]) == ("line 0", "line 99", 200, 801)
    assert found["lines"][-1] == "x" * 2000


def test_no_log_is_absent_and_no_line_end_is_not_waited_for_without_end(log):
    assert log_gain.gain(log.mark)["type"] == "absent"
    append(log.path, b"y" * (log_gain.MOST_READ + 5))
    assert [len(line) for line in log.gain()["lines"]] == [2000]
    assert log.gain()["lines"] == []


@given(st.lists(st.text("ab\r\n", max_size=6), max_size=12))
def test_however_a_log_is_cut_into_samples_its_lines_are_the_same(tmp_path_factory, parts):
    log, lines = Log(tmp_path_factory.mktemp("log") / "server.log"), []
    log.path.touch()
    for part in parts:
        append(log.path, part.encode())
        lines += log.gain()["lines"]
    text = "".join(parts).replace("\r", "\n")
    assert lines == [line for line in text[: text.rfind("\n") + 1].split("\n") if line]
