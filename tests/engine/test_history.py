"""What a run measured is found by later runs of the same command, in no time, and without reading a journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbook.diagnose.baseline import kin
from runbook.engine.history import FILE, MOST_STARTS, earlier, keep
from runbook.model.event import StartMeasured
from runbook.model.usual import MeasuredStart, PhaseTime
from tests.cli.recorded import events

KIN = kin("box", ("H200",) * 8, "sglang", ("python", "-m", "sglang.launch_server", "--tp-size", "8"))
OTHER = kin("box", ("H200",) * 8, "sglang", ("python", "-m", "sglang.launch_server", "--tp-size", "4"))


def run(folder: Path, *starts: MeasuredStart) -> Path:
    """A run's folder, as its end leaves it."""
    folder.mkdir()
    keep(folder, [*events(), *(StartMeasured(step="up", host="gpu", start=start) for start in starts)])
    return folder


def start(ready_s: float, whose=KIN) -> MeasuredStart:
    return MeasuredStart(kin=whose, ready_s=ready_s, phases=(PhaseTime(name="weights", seconds=ready_s / 2, quiet_s=1.0),))


def test_the_newest_starts_of_the_same_command_are_found(tmp_path):
    folders = [run(tmp_path / str(n), start(100.0 + n), start(7.0, OTHER)) for n in range(MOST_STARTS + 5)]
    found = earlier(reversed(folders), KIN)
    assert [one.ready_s for one in found] == [114.0 - n for n in range(MOST_STARTS)]
    assert earlier(reversed(folders), kin("box", (), "vllm", ("vllm",))) == []


def test_a_run_that_measured_nothing_leaves_no_file(tmp_path):
    assert not (run(tmp_path / "none") / FILE).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format":2,"starts":[]}', '{"format":1,"starts":[{"kin":1}]}', "\0" * 300_000])
def test_a_file_of_another_version_or_a_torn_one_is_left_out(tmp_path, text):
    good, bad = run(tmp_path / "1", start(5.0)), run(tmp_path / "2")
    (bad / FILE).write_text(text)
    assert [one.ready_s for one in earlier([bad, tmp_path / "gone", good], KIN)] == [5.0]


def test_the_file_says_which_form_it_has(tmp_path):
    told = json.loads((run(tmp_path / "1", start(5.0)) / FILE).read_text())
    assert told["format"] == 1 and told["starts"][0]["kin"]["gpus"] == "8 x H200"
