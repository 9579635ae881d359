"""The code inside a patched file: it writes what it saw, and the server never notices it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from runbook.probes import payload
from runbook.probes.describing import describer
from runbook.probes.reading import Channel, read
from runbook.probes.spec import Probe
from runbook.probes.transform import Transformed, transform
from tests.support.interpreters import INTERPRETERS

MARKER = "run1/taps/1"


class Shaped:
    """What a probe takes for a tensor."""

    dtype, device = "torch.float16", "cpu"

    def __init__(self, *shape: int) -> None:
        self.shape = shape


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def side(tmp_path):
    path = tmp_path / "side.jsonl"
    path.touch()
    return path


def armed(side: Path, clock=None, total: int = 2000, hits: int = 20):
    probe = {"hits": hits, "per": 10.0, "plain": ["x"], "when_plain": True}
    home = {"__file__": __file__, "__name__": "model"}
    config = {"marker": MARKER, "side": str(side), "total": total, "probes": [probe], "home": home, "describer": describer}
    return payload.arm(config, clock)


def records(side: Path) -> Channel:
    return read(side.read_bytes(), MARKER)


def call(probes, **shown) -> None:
    _ = probes(0) and probes.hit(0, {name: (lambda value=value: value) for name, value in shown.items()})


def test_the_bucket_refills_and_says_so_when_it_is_empty(side):
    clock = Clock()
    probes = armed(side, clock)
    for _ in range(50):
        call(probes, x=1)
        clock.now += 0.01
    assert len(records(side).hits) == 20
    dropped = records(side).silences
    assert [one.kind for one in dropped] == ["dropped"]
    assert dropped[0].until is not None and 9.0 < dropped[0].until - dropped[0].time < 10.0
    clock.now += 10
    call(probes, x=1)
    assert len(records(side).hits) == 21


def test_a_new_shape_has_a_bucket_of_its_own(side):
    """Warm-up and health checks cannot use up the hits of the request that matters."""
    clock = Clock()
    probes = armed(side, clock)
    for _ in range(100):
        call(probes, x=Shaped(1, 64))
        clock.now += 0.01
    call(probes, x=Shaped(7, 192))
    assert records(side).hits[-1].shown["x"]["shape"] == [7, 192]


def test_an_empty_bucket_evaluates_nothing(side):
    probes = armed(side, Clock(), hits=1)
    looked = []
    for _ in range(100):
        _ = probes(0) and probes.hit(0, {"x": lambda: looked.append(1)})
    assert len(looked) == 2  # the hit, and the look that found the bucket empty


def test_the_total_is_capped_and_that_is_told_once(side):
    clock = Clock()
    probes = armed(side, clock, total=5)
    for _ in range(50):
        call(probes, x=1)
        clock.now += 1
    assert len(records(side).hits) == 5
    assert [(one.kind, one.until) for one in records(side).silences] == [("spent", None)]


def test_hits_are_counted_once_over_all_threads(side):
    probes = armed(side, Clock())
    threads = [threading.Thread(target=lambda: [probes.hit(0, {"x": lambda: 1}) for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = records(side)
    assert len(found.hits) == 20 and found.torn == 0
    assert len({hit.seq for hit in found.hits}) == 20


def test_each_value_is_read_once_and_one_that_raises_is_recorded(side):
    probes = armed(side)
    reads = []
    probes.hit(0, {"x": lambda: reads.append(1) or 7, "y": lambda: 1 / 0})
    assert reads == [1]
    assert records(side).hits[0].shown == {"x": 7, "y": {"error": "ZeroDivisionError: division by zero"}}


def test_a_condition_decides_and_one_that_raises_is_told(side):
    probes = armed(side)
    probes.hit(0, {"x": lambda: 1}, lambda: False)
    assert records(side).hits == ()
    probes.hit(0, {"x": lambda: 1}, lambda: missing_name)  # noqa: F821
    assert "NameError" in records(side).hits[0].condition


def test_only_exceptions_are_caught(side):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        armed(side).hit(0, {"x": stop})


@pytest.mark.parametrize(
    "value", ["z" * 10**6, ["é" * 10**5] * 16, {"a": "b" * 10**5}, [Shaped(*range(1, 40))] * 16, float("nan"), 2**100, [float("inf")]]
)
def test_a_hit_is_one_valid_line_of_at_most_4096_bytes(side, value):
    armed(side).hit(0, {"x": lambda: value, "y" * 5000: lambda: value})
    lines = side.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2 and all(len(line) <= 4096 and line.endswith(b"\n") for line in lines)
    assert json.loads(lines[1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["kind"] == "hit"


def test_a_value_whose_repr_fails_costs_the_hit_not_the_server(side):
    class Bad:
        def __repr__(self):
            raise ValueError("no")

    assert armed(side).hit(0, {"x": Bad}) is None


def test_pickled_with_a_function_of_main_it_is_silent_in_the_copy(side):
    assert pickle.loads(pickle.dumps(armed(side)))(1) is False


def test_side_file_and_stderr_get_the_same_lines(side, capfd):
    call(armed(side), x=1)
    assert capfd.readouterr().err.encode() == side.read_bytes()


SERVER = b'''"""A server."""
from __future__ import annotations
import os
import sys
import threading


class Model:
    def forward(self, ids, __x=3):
        """One step."""
        hidden = [i * 2 for i in ids]
        if not hidden: return None
        return sum(hidden) + __x


def work():
    model = Model()
    return [model.forward(range(n)) for n in range(5)]


if __name__ == "__main__":
    print(work())
    if "fork" in sys.argv:
        pid = os.fork()
        print(work(), flush=True)
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
'''
PROBES = (
    Probe(at="Model.forward", after="hidden = [i * 2 for i in ids]", show={"hidden": "hidden", "n": "len(hidden)"}),
    Probe(at="Model.forward", before="return None", show=["__x", "nowhere"]),
)


def patched(tmp_path: Path, side: Path | str, source: bytes = SERVER, probes=PROBES) -> Path:
    path = tmp_path / "server.py"
    result = transform(source, probes, marker=MARKER, side_file=str(side), path=str(path), run="run1")
    assert isinstance(result, Transformed), result
    path.write_bytes(result.data)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("python", INTERPRETERS)
def test_a_patched_server_answers_as_before_on_every_python(tmp_path, side, python):
    path = patched(tmp_path, side)
    done = subprocess.run([python, "-O", str(path)], capture_output=True, timeout=30)
    assert done.returncode == 0 and done.stdout == b"[None, 3, 5, 9, 15]\n"
    found = records(side)
    assert [hit.shown["n"] for hit in found.hits if hit.probe == 0] == [0, 1, 2, 3, 4]
    assert [hit.shown["__x"] for hit in found.hits if hit.probe == 1] == [3]
    assert (found.armed[0].file, found.armed[0].module) == (str(path), "__main__")
    assert done.stderr == side.read_bytes()


def test_a_forked_child_reports_itself(tmp_path, side):
    subprocess.run([sys.executable, str(patched(tmp_path, side)), "fork"], capture_output=True, timeout=30, check=True)
    found = records(side)
    assert [one.how for one in found.armed] == ["import", "fork"]
    parent, child = (one.pid for one in found.armed)
    assert found.armed[1].ppid == parent and found.armed[1].start > 0
    assert {hit.pid for hit in found.hits} == {parent, child}


BROKEN_OUTPUTS = {"stderr is closed": "2>&-", "stderr is full": "2>/dev/full"}


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN_OUTPUTS)
def test_the_side_file_is_written_when(tmp_path, side, how):
    command = f'exec "{sys.executable}" "{patched(tmp_path, side)}" {BROKEN_OUTPUTS[how]}'
    done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"[None, 3, 5, 9, 15]\n")
    assert len(records(side).hits) == 6


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/dev/full", "/nonexistent/side.jsonl"])
def test_a_full_or_missing_side_file_leaves_the_lines_on_stderr(tmp_path, target):
    done = subprocess.run([sys.executable, str(patched(tmp_path, target))], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"[None, 3, 5, 9, 15]\n")
    assert len(read(done.stderr, MARKER).hits) == 6


def test_a_pipe_that_nobody_reads_does_not_block_the_server(tmp_path, side):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    done = subprocess.run([sys.executable, str(patched(tmp_path, side))], stdout=subprocess.PIPE, stderr=writing, timeout=30)
    os.close(reading), os.close(writing)
    assert done.stdout == b"[None, 3, 5, 9, 15]\n" and len(records(side).hits) == 6


def test_an_import_that_fails_half_way_has_been_seen(tmp_path, side):
    path = patched(tmp_path, side, b"def f():\n    pass\nimport no_such_module\n", (Probe(at="f", where="entry"),))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=30)
    assert b"ModuleNotFoundError" in done.stderr
    assert [one.how for one in records(side).armed] == ["import"]


def test_a_copy_of_the_module_made_by_exec_reports_too(tmp_path, side):
    code = f"source = open({str(patched(tmp_path, side))!r}).read()\nspace = {{'__name__': 'copy'}}\nexec(source, space)\nprint(space['work']())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    assert done.stdout == b"[None, 3, 5, 9, 15]\n"
    assert records(side).armed[0].module == "copy" and len(records(side).hits) == 6


def test_the_cost_of_an_empty_bucket_is_printed(side, capsys):
    """A figure for people; as a bound it would fail on a busy machine. It is below 1 µs on an idle one."""
    probes = armed(side, hits=1)
    count, began = 20_000, time.process_time()
    for _ in range(count):
        _ = probes(0) and probes.hit(0, {"x": lambda: 1})
    with capsys.disabled():
        print(f"\nempty bucket: {(time.process_time() - began) / count * 1e6:.2f} µs a call")  # noqa: T201
    assert len(records(side).hits) == 1
