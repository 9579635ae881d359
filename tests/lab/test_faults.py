"""`runbook lab up --fault NAME` and `--fault` of the engine: the fault is real, and it is in the place that it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook.lab import control
from runbook.lab.faults import LIVE, NAMES, NEED_RANKS
from runbook.lab.sources import import_engine
from tests.lab.conftest import Engine
from tests.support.processes import state_of
from tests.support.waiting import until

import_engine()
from lab_engine import trouble  # noqa: E402


def stuck(home: Path, pids: list[int]) -> bool:
    """Whether a rank has written down that its progress ended."""
    return any(list((home / "faults" / str(pid)).glob("stuck-*")) for pid in pids)


def threads_in(pid: int, wchan: str) -> int:
    """Threads of a process that the kernel has waiting there."""
    return sum(wchan in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan"))


def test_every_fault_has_its_place_in_the_engine() -> None:
    assert {"rank_missing", *(name for names in trouble.PLACES.values() for name in names)} == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "says"), [*((name, "--tp-size 4") for name in NEED_RANKS), ("gremlin", "stale_lock")])
def test_a_fault_that_cannot_be_had_is_refused(name: str, says: str, home: Path) -> None:
    argv = [sys.executable, "-m", "lab_engine.launch_server", "--fault", name]
    said = subprocess.run(argv, cwd=home, capture_output=True, text=True, timeout=60)
    assert said.returncode == 2 and says in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wchan"), [("deadlock", "futex"), ("livelock", "nanosleep"), ("stale_lock", "nanosleep"), ("log_pipe", "pipe")]
)
def test_a_hang_of_one_rank_is_real(name: str, wchan: str, engine: Callable[..., Engine], home: Path) -> None:
    server = engine("--fault", name)
    until(lambda: stuck(home, server.ranks()), 60)
    until(lambda: threads_in(server.ranks()[0], wchan), 30)
    assert "Load weight begin" in server.log and "Load weight end" not in server.log


@pytest.mark.slow
def test_a_stopped_rank_is_the_last_of_two(engine: Callable[..., Engine], home: Path) -> None:
    server = engine("--fault", "rank_stopped", "--tp-size", "2")
    until(lambda: "T" in [state_of(pid) for pid in server.ranks()], 60)
    assert [state_of(pid) for pid in server.ranks()].count("T") == 1


@pytest.mark.slow
def test_a_missing_rank_leaves_the_others_at_the_rendezvous(engine: Callable[..., Engine]) -> None:
    server = engine("--fault", "rank_missing", "--tp-size", "2")
    until(lambda: "Init parallel begin" in server.log, 60)
    assert len(server.ranks()) == 1 and "Init parallel ends" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIVE if name != "long_prefill"])
def test_a_slow_phase_works(name: str, engine: Callable[..., Engine]) -> None:
    server = engine("--fault", name)
    until(lambda: "Load weight begin" in server.log, 60)
    (rank,) = server.ranks()

    def moved() -> int:
        """Bytes read by the rank and by the children that it has waited for."""
        return int(next(line for line in Path(f"/proc/{rank}/io").read_text().splitlines() if line.startswith("rchar")).split()[1])

    before = moved()
    until(lambda: moved() > before + 100_000, 30)
    assert "Load weight end" not in server.log


@pytest.mark.e2e
def test_the_lab_starts_its_servers_with_the_fault_that_it_was_told(state: Path) -> None:
    line = [sys.executable, "-c", "from runbook.cli.lab import command; command(prog_name='runbook lab')"]
    wrong = subprocess.run([*line, "up", "--fault", "gremlin"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 2 and "deadlock" in wrong.stderr
    assert subprocess.run([*line, "up", "--fault", "stale_lock"], timeout=120).returncode == 0
    place = control.current()
    assert place is not None
    assert json.loads(subprocess.run([*line, "status", "--json"], stdout=subprocess.PIPE, timeout=60).stdout)["fault"] == "stale_lock"
    code = "from lab_engine.server_args import parse; print(parse([]).fault, parse(['--fault', 'none']).fault)"
    said = subprocess.run([sys.executable, "-c", code], cwd=place.home, env={**os.environ}, capture_output=True, text=True, timeout=60)
    assert said.stdout.split() == ["stale_lock"]
    assert subprocess.run([*line, "up", "--fault", "none"], timeout=120).returncode == 0
    assert control.fault(place) is None
