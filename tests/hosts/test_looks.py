"""A look over a real channel is the same whether all of it was sent or only what changed."""

import json
import subprocess
import sys
import zlib

import msgspec
import pytest

from runbook.hosts.base import Host
from runbook.hosts.local import connect_local
from runbook.hosts.looks import Looks, OutOfStep
from runbook.model.sample import Sample
from runbook.onhost import procs

PROGRAM = """
import threading
for _ in range(5): threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
for line in __import__("sys").stdin: exec(line); print("done", flush=True)
"""


@pytest.fixture
def host():
    found = connect_local()
    yield found
    found.close()


@pytest.mark.slow
def test_looks_that_follow_one_another_are_whole(host: Host):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            process.stdout.readline()
            spec = {"pid": process.pid, "start": procs.start_ticks(process.pid), "threads": True, "full": True}
            for line in (
                "pass",
                "threading.Thread(target=threading.Event().wait, daemon=True).start()",
                "f = open('/etc/hosts'); f.read()",
            ):
                process.stdin.write(line + "\n")
                process.stdout.readline()
                by_changes = host.sample(spec)
                whole = msgspec.convert(host.call("sample", **spec).data, Sample)
                [one], [same] = by_changes.processes.value, whole.processes.value
                assert [thread.tid for thread in one.threads] == [thread.tid for thread in same.threads]
                assert (one.files, one.title, one.threads[1:]) == (same.files, same.title, same.threads[1:])
        finally:
            process.kill()


@pytest.mark.slow
def test_a_second_look_brings_a_fraction_of_the_first(host: Host):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            spec = {"pid": process.pid, "start": procs.start_ticks(process.pid), "threads": True, "full": True, "chain": "x"}
            first = host.call("sample", **spec)
            second = host.call("sample", **spec, has=first.data["number"])
            assert second.data["since"] == first.data["number"]
            assert len(second.blob) < len(first.blob) / 2
        finally:
            process.kill()


def packed(data):
    return zlib.compress(json.dumps(data).encode())


def test_a_look_that_builds_on_one_that_is_not_here_is_out_of_step():
    looks = Looks()
    assert looks.take("a", {"number": 1}, packed({"t": 1.0})) == {"t": 1.0}
    with pytest.raises(OutOfStep):
        looks.take("a", {"number": 3, "since": 2}, packed({"~": {"t": 3.0}}))
    assert looks.has("a") == 0


def test_a_host_that_knows_no_chains_sends_the_whole():
    assert Looks().take("a", {"t": 1.0}, b"") == {"t": 1.0}


@pytest.mark.parametrize("blob", [b"", b"nonsense", zlib.compress(b"{")])
def test_an_answer_that_is_no_look_is_refused(blob):
    with pytest.raises(ValueError):
        Looks().take("a", {"number": 1}, blob)
