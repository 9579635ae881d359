"""What communicators say of their ranks: RAS texts written from its documented format over a real socket, flight recorder dumps by torch."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Host, ProcessId
from runbook.model.sample import Absent, Blind, Seen
from runbook.model.waits import CollectiveSample
from runbook.onhost import flight_read, ras_read
from tests.support.processes import python, start_of
from tests.support.waiting import until

DATA = Path(__file__).parents[1] / "data" / "ras"


def rows(name: str) -> dict[tuple[str, int], tuple[Any, str, str]]:
    answer = ras_read.read((DATA / name).read_text())
    return {(row["group"], row["rank"]): (row["sequence"], row["operation"], row["state"]) for row in answer.rows}


class TestRas:
    def test_json_gives_each_rank_its_counts_and_names_those_that_do_not_answer(self) -> None:
        found = rows("json_mismatch.txt")
        group = "0xae94423cfbb2ef4a"
        assert found[group, 0] == (6651, "AllReduce 6650, Broadcast 1", "") == found[group, 1]
        assert found[group, 2] == (6651, "AllReduce 6649, Broadcast 2", ""), "the same number of operations, but another kind"
        assert found[group, 3] == (None, "", "unresponsive") and found["0x1", 0] == (0, "", "initialising")

    def test_text_of_one_count_fills_in_the_majority_that_is_not_listed(self) -> None:
        found = rows("text_224_mismatch.txt")
        assert len(found) == 32 and sum(row == (6649, "all 6649", "") for row in found.values()) == 6
        assert found["27a079b828ff1a75", 0][0] == 6649 and found["27a079b828ff1a75", 1][0] == 6650

    def test_text_by_kind_adds_the_kinds_up(self) -> None:
        found = rows("text_226_by_kind.txt")
        assert found["9f2c", 0] == (10, "Broadcast 0, AllReduce 10", "")
        assert found["9f2c", 3] == (10, "Broadcast 1, AllReduce 9", "")

    def test_a_missing_rank_is_unresponsive_and_dead_when_ras_says_so(self) -> None:
        assert rows("text_incomplete.txt") == {("cf264af53edbe986", 21): (None, "", "unresponsive")}
        assert rows("text_dead.txt") == {("cf264af53edbe986", 21): (None, "", "dead")}

    def test_an_even_split_that_is_not_listed_names_nobody(self) -> None:
        assert rows("text_even_split.txt") == {}

    @pytest.mark.parametrize("cut", [3, 200, 1000])
    def test_what_is_cut_or_foreign_is_no_answer(self, cut: int) -> None:
        with pytest.raises(ValueError):
            ras_read.read((DATA / "json_mismatch.txt").read_text()[:cut])
        with pytest.raises(ValueError):
            ras_read.read("HTTP/1.1 400 Bad Request\r\n")

    def test_every_prefix_of_a_text_is_read_without_a_fault(self) -> None:
        text = (DATA / "text_226_by_kind.txt").read_text()
        for end in range(0, len(text), 7):
            with contextlib.suppress(ValueError):
                ras_read.read(text[:end])


RAS_SERVER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
open(sys.argv[2], "w").write(str(server.getsockname()[1]))
while True:
    stream, _ = server.accept()
    data = b""
    while b"verbose status\\n" not in data:
        data += stream.recv(4096)
    if sys.argv[1] != "silent":
        known = b"OK\\n" if "json" in sys.argv[1] else b"ERROR: Unknown command set format json\\n"
        stream.sendall(b"OK\\n" + known + open(sys.argv[1], "rb").read())
        stream.close()
"""


@contextlib.contextmanager
def ras_server(answer: str, folder: Path) -> Iterator[tuple[ProcessId, int]]:
    """A process that answers as NCCL's RAS thread does, and its port."""
    port = folder / "port"
    with python(RAS_SERVER, answer, str(port)) as child:
        yield start_of(child.pid), int(until(lambda: port.exists() and port.read_text()))


@contextlib.contextmanager
def with_address(port: int) -> Iterator[ProcessId]:
    with python(
        "print('ready', flush=True); import time; time.sleep(60)", env={**os.environ, "NCCL_RAS_ADDR": f"localhost:{port}"}
    ) as child:
        yield start_of(child.pid)


def test_a_version_without_json_is_asked_in_text(local_host: Host, tmp_path: Path) -> None:
    with ras_server(str(DATA / "text_226_by_kind.txt"), tmp_path) as (server, port), with_address(port) as rank:
        found = local_host.collectives([(rank, 0), (server, 1)], look=2)
    assert isinstance(found, Seen), found
    assert CollectiveSample(group="9f2c", rank=3, source="ras", sequence=10, operation="Broadcast 1, AllReduce 9", look=2) in found.value


def test_the_ras_of_another_job_is_not_believed(local_host: Host, tmp_path: Path) -> None:
    with ras_server(str(DATA / "json_mismatch.txt"), tmp_path) as (server, port), with_address(port) as rank:
        found = local_host.collectives([(rank, 0)])
    assert isinstance(found, Blind) and f"belongs to another job (pid {server.pid})" in found.reason


@pytest.mark.slow
def test_a_ras_that_never_answers_is_blind_in_bounded_time(local_host: Host, tmp_path: Path) -> None:
    with ras_server("silent", tmp_path) as (server, port), with_address(port) as rank:
        found = local_host.collectives([(rank, 0), (server, 1)], limit_s=2.0)
    assert isinstance(found, Blind) and "no answer in" in found.reason


def test_without_a_communicator_there_is_nothing_and_it_says_how_to_have_one(local_host: Host) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with with_address(free.getsockname()[1]) as rank:
            found = local_host.collectives([(rank, 0)])
    assert isinstance(found, Absent) and "does not listen" in found.reason and "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in found.reason


RANK = """
import os, sys, threading, datetime
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
rank, kind = int(os.environ["RANK"]), sys.argv[1]
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "%d.pipe" % rank
os.mkfifo(pipe)
reader = os.open(pipe, os.O_RDWR)
def serve():
    while os.read(reader, 128):
        open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "wb").write(_dump_fr_trace(True, False, False))
threading.Thread(target=serve, daemon=True).start()
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=3, timeout=datetime.timedelta(seconds=180))
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
print("ready", flush=True)
def stays_away():
    threading.Event().wait(60)
if rank != 2:
    dist.all_reduce(x)
elif kind == "skip":
    stays_away()
else:
    dist.broadcast(x, 0)
"""
"""A gloo rank with a real recorder. Torch itself serves the FIFO for NCCL only, so a thread of the rank does here what it does there.

Without stacks: for its first dump with them torch reads the symbols of its libraries, which takes seconds."""


@contextlib.contextmanager
def gloo(kind: str, folder: Path) -> Iterator[list[tuple[ProcessId, int | None]]]:
    """Three ranks, of which the last does not come to the fourth collective, or comes to another one."""
    env = {
        **os.environ,
        "TORCH_FR_BUFFER_SIZE": "100",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/dump_",
        "OMP_NUM_THREADS": "1",
    }
    with contextlib.ExitStack() as stack:
        children = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, kind, f"{folder}/store"],
                env={**env, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(3)
        ]
        for child in children:
            stack.callback(child.wait, 10)
            stack.callback(child.kill)
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            stack.callback(child.stdout.close)
        yield [(start_of(child.pid), rank) for rank, child in enumerate(children)]


def seen(found: Any) -> dict[int, tuple[Any, str, str]]:
    if not isinstance(found, Seen):
        return {}
    assert {row.source for row in found.value} == {"flight"} and len({row.group for row in found.value}) == 1
    return {row.rank: (row.sequence, row.operation, row.state) for row in found.value}


@pytest.mark.slow
def test_the_rank_that_stays_away_is_seen_in_recorder_and_stacks(local_host: Host, tmp_path: Path) -> None:
    with gloo("skip", tmp_path) as ranks:
        waiting = {0: (4, "all_reduce [[4]]", "started"), 1: (4, "all_reduce [[4]]", "started"), 2: (3, "all_reduce [[4]]", "completed")}
        assert until(lambda: (found := seen(local_host.collectives(ranks, limit_s=20))) == waiting and found, 60)
        stacks = local_host.stacks(ranks)
        again = local_host.collectives(ranks, look=2, limit_s=20)
    assert seen(again) == waiting and {row.look for row in again.value} == {2}
    assert isinstance(stacks, Seen)
    place = {row.rank: " < ".join(row.frames) for row in stacks.value if row.main}
    assert "all_reduce (torch/distributed/distributed_c10d.py" in place[0] and "all_reduce (" in place[1]
    assert "stays_away (<string>" in place[2] and "all_reduce" not in place[2]


@pytest.mark.slow
def test_another_collective_at_the_same_number_is_told_apart(local_host: Host, tmp_path: Path) -> None:
    with gloo("mismatch", tmp_path) as ranks:
        found = until(
            lambda: (rows := seen(local_host.collectives(ranks, limit_s=20))) and all(row[0] == 4 for row in rows.values()) and rows, 20
        )
        dumps = [flight_read.load((tmp_path / f"dump_{rank}").read_bytes()) for rank in range(3)]
    assert found == {0: (4, "all_reduce [[4]]", "started"), 1: (4, "all_reduce [[4]]", "started"), 2: (4, "broadcast [[4]]", "started")}
    (sentence,) = flight_read.divergence([row for rank, dump in enumerate(dumps) for row in flight_read.rows(dump, rank)])
    assert sentence.endswith(": rank 0, 1: all_reduce [[4]] #4 started; rank 2: broadcast [[4]] #4 started")


class TestDump:
    def test_a_dump_that_would_call_something_is_refused(self) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return os.system, ("true",)

        for data in (pickle.dumps({"entries": [Evil()]}), pickle.dumps(os.getcwd, 0)):
            with pytest.raises(ValueError, match="no flight recorder dump"):
                flight_read.load(data)

    @pytest.mark.parametrize("data", [b"", b"{", b"\x80\x02}", pickle.dumps([1]), pickle.dumps({"entries": 3}), json.dumps({}).encode()])
    def test_what_is_no_dump_is_told_as_such(self, data: bytes) -> None:
        with pytest.raises(ValueError):
            flight_read.load(data)

    def test_entries_of_any_shape_give_rows_or_nothing(self) -> None:
        dump = {
            "entries": [
                {},
                {"collective_seq_id": "x"},
                {"collective_seq_id": 3, "process_group": 7},
                {"collective_seq_id": 9, "is_p2p": True},
            ]
        }
        assert flight_read.rows(dump, 0) == [{"group": "", "rank": 0, "sequence": 3, "operation": "", "state": "started"}]

    def test_agreeing_ranks_do_not_diverge(self) -> None:
        row = {"group": "0", "sequence": 4, "operation": "all_reduce", "state": "started"}
        assert flight_read.divergence([{**row, "rank": 0}, {**row, "rank": 1}]) == []


def test_a_fifo_that_nobody_reads_does_not_hold_the_look(local_host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fr0.pipe")
    env = {**os.environ, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr"), "NCCL_RAS_ADDR": "localhost:1"}
    with python("print('ready', flush=True); import time; time.sleep(60)", env=env) as child:
        found = local_host.collectives([(start_of(child.pid), 0)])
    assert isinstance(found, Blind) and "nobody reads" in found.reason


def dump_of(sequence: int) -> bytes:
    """A dump as torch writes it, protocol 2 of plain data."""
    entry = {"collective_seq_id": sequence, "process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce", "state": "started"}
    entry["frames"] = [{"name": "all_reduce", "filename": "/x/distributed_c10d.py", "line": 3245}]
    return pickle.dumps({"version": "2.10", "pg_status": {}, "entries": [entry]}, 2)


@pytest.mark.slow
def test_dumps_of_this_servers_life_go_into_the_bundle_but_are_no_look(local_host: Host, tmp_path: Path) -> None:
    """Twice the same old dump would look like a communicator that stands still."""
    (tmp_path / "dump_0").write_bytes(dump_of(3))
    os.utime(tmp_path / "dump_0", (1, 1))
    env = {**os.environ, "RANK": "0", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_", "NCCL_RAS_ADDR": "localhost:1"}
    with python("print('ready', flush=True); import time; time.sleep(60)", env=env) as child:
        target = start_of(child.pid)
        spec = {"pid": target.pid, "start": target.start}
        (item,) = local_host.collect(spec, ["flight_recorder"]).items
        assert item.status == "absent", "that dump is older than the server"
        (tmp_path / "dump_0").write_bytes(dump_of(41))
        taken = local_host.collect(spec, ["flight_recorder"])
        assert isinstance(local_host.collectives([(target, 0)]), Absent)
    files = {file.name: file.data for file in taken.files}
    assert files["flight_rank0.pickle"] == dump_of(41)
    text = files["flight_recorder.txt"].decode()
    assert "0 default_pg" in text and "41" in text and "written earlier in this server's life" in text


@pytest.mark.slow
def test_ras_goes_into_the_bundle_in_its_own_words(local_host: Host, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    code = RAS_SERVER.replace('("127.0.0.1", 0)', f'("127.0.0.1", {number})')
    env = {**os.environ, "NCCL_RAS_ADDR": f"localhost:{number}"}
    with python(code, str(DATA / "text_226_by_kind.txt"), str(tmp_path / "port"), env=env) as child:
        target = start_of(child.pid)
        taken = local_host.collect({"pid": target.pid, "start": target.start}, ["ras"])
    assert [item.status for item in taken.items] == ["taken"] and b"Rank 3 has launched up to operation 9" in taken.files[0].data


@pytest.mark.slow
def test_a_rank_that_takes_the_question_and_writes_nothing_is_blind_though_an_old_dump_lies_there(local_host: Host, tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(dump_of(41))
    os.utime(tmp_path / "dump_0", (time.time() - 5, time.time() - 5))
    env = {**os.environ, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/fr", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    code = "import os, sys; os.mkfifo(sys.argv[1]); fd = os.open(sys.argv[1], os.O_RDWR); print('ready', flush=True); os.read(fd, 1); os.read(fd, 1)"
    with python(code, f"{tmp_path}/fr0.pipe", env={**env, "NCCL_RAS_ADDR": "localhost:1"}) as child:
        found = local_host.collectives([(start_of(child.pid), 0)], limit_s=1.2)
    assert isinstance(found, Blind) and "rank 0: no dump in" in found.reason
