"""runs: the list and its filters."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from runbook.cli import store
from runbook.cli.main import exit_code
from runbook.cli.recorded import last_open
from tests.cli.recorded import T0, events, record, recorded


@pytest.fixture
def several(own_state):
    """Six runs of all kinds."""
    now = time.time()
    recorded(own_state, "a-old", t=T0 - 2e8)
    recorded(own_state, "b-passed", t=now - 3000)
    recorded(own_state, "c-hung", verdict="hung", t=now - 2000)
    recorded(own_state, "d-slow", verdict="slow", t=now - 1000, name="Another book")
    record(own_state / "runbook" / "runs" / "e-running", events("e-running", t=now)[:3])
    broken = record(own_state / "runbook" / "runs" / "f-broken", [])
    (broken / "events.jsonl").write_bytes(b"\xff\xff\n")


def listed(capsys, *argv: str) -> list[str]:
    assert exit_code(["runs", "--json", *argv]) == 0
    return [row["run"] for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), ["f-broken", "e-running", "d-slow", "c-hung", "b-passed", "a-old"]),
        (("--verdict", "hung"), ["c-hung"]),
        (("--verdict", "hung", "--verdict", "passed"), ["c-hung", "b-passed", "a-old"]),
        (("--playbook", "another"), ["d-slow"]),
        (("--playbook", "EAGLE.yaml"), ["e-running", "d-slow", "c-hung", "b-passed", "a-old"]),
        (("--since", "40m"), ["e-running", "d-slow", "c-hung"]),
        (("--since", "2d", "--verdict", "passed"), ["b-passed"]),
        (("--state", "suspended"), ["d-slow"]),
        (("--state", "running"), ["e-running"]),
        (("--state", "unreadable"), ["f-broken"]),
        (("-n", "1", "--verdict", "passed"), ["b-passed"]),
    ],
)
def test_filters_leave_the_runs_that_were_asked_for(argv, expected, several, capsys):
    assert listed(capsys, *argv) == expected


def test_a_line_has_run_time_state_verdict_duration_and_name(several, capsys):
    assert exit_code(["runs", "--state", "suspended"]) == 0
    line = capsys.readouterr().out.split()
    assert line[0] == "d-slow" and line[3:5] == ["suspended", "slow"] and line[-2:] == ["Another", "book"]


def test_no_match_and_a_wrong_duration_are_said(several, capsys):
    assert exit_code(["runs", "--verdict", "crashed"]) == 0
    assert "match" in capsys.readouterr().err
    assert exit_code(["runs", "--since", "2"]) == 2
    assert "write `2s` for seconds" in capsys.readouterr().err


def test_a_name_from_a_journal_cannot_steer_the_terminal(own_state, capsys):
    recorded(own_state, "r1", name="\x1b[2Jevil\n\u202ex")
    assert exit_code(["runs"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and all(char.isprintable() or char == "\n" for char in out)


def test_a_long_journal_is_listed_by_its_two_ends(own_state, capsys):
    folder = recorded(own_state, "r1", verdict="hung")
    journal = folder / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], *[lines[1]] * 20_000, *lines[1:]]))
    assert listed(capsys, "--verdict", "hung", "--state", "ended") == ["r1"]


def test_the_last_run_of_cancel_is_the_last_that_is_open(own_state, several):
    recorded(own_state, "g-passed", t=time.time())
    for name in ("e-running", "f-broken"):
        shutil.rmtree(own_state / "runbook" / "runs" / name)
    assert last_open().name == "d-slow"
    shutil.rmtree(own_state / "runbook" / "runs" / "d-slow")
    assert last_open().name == "g-passed"


def test_links_to_removed_folders_go_with_the_next_run_and_those_of_a_disk_that_is_away_stay(own_state, tmp_path):
    (tmp_path / "disk").mkdir()
    places = [store.Place(f"r{n}", tmp_path / part) for n, part in enumerate(["here", "gone", "deep/er/gone", "disk/away"])]
    (tmp_path / "here").mkdir()
    for place in places:
        store.remember(place)
    (tmp_path / "disk" / "more").mkdir()
    store.remember(store.Place("r8", tmp_path / "here"))
    links = own_state / "runbook" / "runs"
    assert sorted(path.name for path in links.iterdir()) == ["r0", "r8"]
    (tmp_path / "disk" / "more").rmdir()
    store.remember(places[3])
    store.remember(store.Place("r9", tmp_path / "here"))
    assert sorted(path.name for path in links.iterdir()) == ["r0", "r3", "r8", "r9"]
