"""Mapped weight files: what a loader that maps its shards has read, with a kernel that counts pages and with one that does not."""

import subprocess
import sys

import pytest
from keeper_kit import until

from runbook.onhost import mapped, procs
from runbook.onhost.process_look import memory_of

READER = """
import mmap, sys
with open(sys.argv[1], "rb") as source:
    pages = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
pages.madvise(mmap.MADV_RANDOM)
print("up", flush=True)
for line in sys.stdin:
    for at in range(*map(int, line.split())): pages[at * mmap.PAGESIZE]
    print("read", flush=True)
"""
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(mapped, "REST", 0)


@pytest.fixture
def reader(tmp_path):
    """Maps a file of 4 MiB; `read(a, b)` touches these pages."""
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(bytes(4 * MIB))
    argv = [sys.executable, "-c", READER, str(tmp_path / "model-00001-of-00002.safetensors")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        process.stdout.readline()

        def read(first, last):
            process.stdin.write(f"{first} {last}\n")
            process.stdout.readline()

        process.read = read
        yield process
        process.kill()


def weigh(weights, pid):
    """The next reading that was made."""

    def read():
        stat = procs.read_stat(pid)
        memory = memory_of(stat)
        found = weights.read(stat.faults, memory["VmSize"], memory["RssFile"])
        return found if found["type"] != "blind" else None

    return until(read)["value"]


def rss(pid):
    """What smaps says of the file, read anew; the kernel maps more than the page that was asked for when they lie together."""
    with open(f"/proc/{pid}/smaps") as source:
        return 1024 * int(source.read().split(".safetensors\n", 1)[1].split("Rss:", 1)[1].split()[0])


@pytest.mark.parametrize("request_number", [mapped._PAGEMAP_SCAN, 0x6666])
def test_pages_are_counted_as_they_are_read(reader, monkeypatch, request_number):
    monkeypatch.setattr(mapped, "_PAGEMAP_SCAN", request_number)
    weights = mapped.Weights(reader.pid)
    found = [weigh(weights, reader.pid)]
    for first, last in ((0, 1), (600, 601), (0, 1024)):
        reader.read(first, last)
        found.append(weigh(weights, reader.pid))
        assert found[-1] == rss(reader.pid)
    assert found[0] == 0 < found[1] < found[2] <= found[3] == 4 * MIB
    assert weights._counts_ranges is (request_number != 0x6666)


def test_more_regions_than_one_answer_of_the_kernel_holds(reader, monkeypatch):
    monkeypatch.setattr(mapped, "_REGIONS", 1)
    for at in (0, 400, 1000):
        reader.read(at, at + 1)
    begin, end = mapped.Weights(reader.pid).find()[0]
    assert mapped.resident_bytes(reader.pid, [(begin, begin + MIB), (begin + MIB, end)]) == rss(reader.pid)


def test_while_nothing_moves_nothing_is_read(reader, monkeypatch):
    weights = mapped.Weights(reader.pid)
    reader.read(0, 1024)
    assert weigh(weights, reader.pid) == 4 * MIB
    monkeypatch.setattr(mapped.Weights, "_count", lambda self: pytest.fail("it was counted again"))
    assert weigh(weights, reader.pid) == 4 * MIB


def test_a_look_that_took_long_is_not_made_again_at_once(reader, monkeypatch):
    monkeypatch.setattr(mapped, "REST", 10**6)
    weights = mapped.Weights(reader.pid)
    assert weights.read(1, 1, 1)["type"] == "seen"
    assert weights.read(2, 1, 1) == {"type": "blind", "reason": "not sampled"}


def test_other_kernels_answer_by_smaps_of_these_files_alone():
    smaps = b"7f00-7f01 r--p 00000000 08:01 1 /m/a.gguf\nSize: 8 kB\nRss: 4 kB\n7f02-7f03 r--p 0 08:01 2 /lib/x.so\nRss: 99 kB\n"
    assert mapped.weight_rss(smaps) == 4096
