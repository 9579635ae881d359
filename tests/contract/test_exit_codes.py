"""Verdict words and exit codes are public. This table is the promise; code, help and README must say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runbook.cli import main as cli
from runbook.model.verdict import EXIT_CODES, EXIT_STILL_RUNNING, INTERRUPTED_BY, WORST_FIRST, status_of, worst

PROMISE = {
    "passed": 0,
    "failed": 1,
    "invalid": 2,
    "hung": 3,
    "slow": 4,
    "crashed": 5,
    "unreachable": 6,
    "wrong_check": 7,
    "wrong_server": 7,
    "invalid_experiment": 7,
    "resource_held": 8,
    "refused": 8,
    "undecided": 9,
    "interrupted": 130,
    "error": 70,
}
TERMINATED, HUNG_UP = 143, 129
RUNNING = 75
"""No verdict yet."""
README = Path(__file__).parents[2] / "README.md"


def test_words_and_codes_are_the_promised_ones():
    assert EXIT_CODES == PROMISE and INTERRUPTED_BY == {"SIGTERM": TERMINATED, "SIGHUP": HUNG_UP}
    assert EXIT_STILL_RUNNING == RUNNING


def test_the_command_line_itself_uses_the_same_codes():
    assert (PROMISE["invalid"], PROMISE["error"], PROMISE["interrupted"]) == (cli.EXIT_USAGE, cli.EXIT_BUG, cli.EXIT_INTERRUPTED)


def test_help_names_each_code_with_its_words():
    text = " ".join(cli.EPILOG.split())
    pairs = re.findall(r"(\d+) ([^,.(]+)", text)
    told = {int(code): words for code, words in pairs}
    assert set(told) == {*PROMISE.values(), TERMINATED, HUNG_UP, RUNNING}
    for word, code in PROMISE.items():
        assert all(part in told[code] or part in text for part in word.split("_")), word


def test_the_readme_has_the_same_table():
    rows = re.findall(r"^\| ([\d, ]+) \| ([a-z_, ]+) \|", README.read_text(), re.MULTILINE)
    told = {word: [int(code) for code in codes.split(",")] for codes, words in rows for word in words.split(", ")}
    verdicts = {word: [code] for word, code in PROMISE.items() if word != "interrupted"}
    assert told == {**verdicts, "interrupted": [HUNG_UP, 130, TERMINATED], "running": [RUNNING]}


def test_every_verdict_of_a_step_has_a_place_in_the_order_of_several_hosts():
    assert {*WORST_FIRST, "passed", "interrupted", "invalid"} == set(PROMISE)
    assert worst(["undecided", "failed", "crashed", "passed"]) == "crashed" and worst(["passed"]) == "passed"


@pytest.mark.parametrize("word", sorted(PROMISE))
def test_a_status_goes_with_each_verdict(word):
    unknown = word in ("undecided", "unreachable", "slow")
    assert status_of(word) == ("passed" if word == "passed" else "unknown" if unknown else "failed")
