"""compare: what differs, on one screen; the exit code is the answer to "the same verdict?"."""

from __future__ import annotations

import json

from runbook.cli.main import exit_code
from tests.cli.recorded import T0, recorded


def test_equal_runs_say_so_and_exit_0(own_state, capsys):
    recorded(own_state, "r1")
    recorded(own_state, "r2", t=T0 + 100)
    assert exit_code(["compare", "r1", "r2"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_another_verdict_exits_1_in_every_format(own_state, capsys):
    recorded(own_state, "r1")
    recorded(own_state, "r2", verdict="hung")
    assert exit_code(["compare", "r1", "r2"]) == 1
    out = capsys.readouterr().out
    assert "verdict  passed" in out and "hung" in out
    assert exit_code(["compare", "r1", "r2", "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["same_verdict"] is False and answer["sections"][0]["rows"][0] == {
        "what": "verdict",
        "a": "passed",
        "b": "hung",
        "note": "",
    }
    assert exit_code(["compare", "r1", "r2", "--format", "html"]) == 1
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


def test_a_baseline_is_the_last_passed_runs_of_the_same_playbook(own_state, capsys):
    for number in range(4):
        recorded(own_state, f"r{number}", t=T0 + number)
    recorded(own_state, "r5-other", name="Another", t=T0 + 5)
    recorded(own_state, "r6-check", check=True, t=T0 + 6)
    recorded(own_state, "r7-bad", verdict="failed", t=T0 + 7)
    recorded(own_state, "r8", verdict="hung", t=T0 + 8)
    assert exit_code(["compare", "r8", "--baseline", "3", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["a"]["run"], answer["a"]["runs"], answer["b"]["run"]) == ("r3", 3, "r8")


def test_without_a_good_run_or_with_one_name_it_says_what_to_type(own_state, capsys):
    recorded(own_state, "r8", verdict="hung")
    assert exit_code(["compare", "r8", "--baseline", "3"]) == 2
    assert "no run of `EAGLE-3 check` has passed" in capsys.readouterr().err
    assert exit_code(["compare", "r8"]) == 2
    assert "two runs, or one run and --baseline N" in capsys.readouterr().err
