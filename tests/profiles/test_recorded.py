"""The profiles, held against logs of real engines: tests/data/real, kept by `python -m tests.real.recordings`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from runbook.cli.profiles import profiles
from runbook.diagnose.causes import causes
from runbook.diagnose.lines import Line, Matcher

FOLDER = Path(__file__).parents[1] / "data" / "real"
TOLD = yaml.safe_load((FOLDER / "told.yaml").read_text(encoding="utf-8"))


def read(name: str) -> tuple[list[Line], Matcher]:
    """A log, line by line as a host splits it, by its profile."""
    rules = Matcher(profiles().read(TOLD[name]["profile"]))
    text = (FOLDER / f"{name}.log").read_text(encoding="utf-8")
    return [rules.read(line) for line in re.split(r"[\r\n]+", text) if line], rules


def test_every_recorded_log_is_told_of():
    assert {path.stem for path in FOLDER.glob("*.log")} == set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_a_real_log_opens_its_phases_in_order_and_is_ready_when_it_was(name):
    lines, _ = read(name)
    opened = [phase for line in lines for phase in line.begins]
    assert [phase for place, phase in enumerate(opened) if opened[place - 1 : place] != [phase]] == TOLD[name]["phases"]
    assert any(line.ready for line in lines) is TOLD[name]["ready"]


@pytest.mark.parametrize("name", TOLD)
def test_a_real_log_names_its_first_cause_and_no_other(name):
    lines, rules = read(name)
    first = causes(lines, rules).first
    kind, text = TOLD[name].get("cause", ["", ""])
    assert ((first.kind, text in first.line) if first else ("", True)) == (kind, True), first


@pytest.mark.parametrize("name", TOLD)
def test_complaints_of_no_consequence_are_no_errors(name):
    """A death without a cause in its log is told with the error before it; that must be one."""
    survived = causes(*read(name)).survived
    assert len(survived) == TOLD[name].get("survived", 0), survived


@pytest.mark.parametrize("name", [name for name, told in TOLD.items() if "accept_length" in told])
def test_a_real_log_holds_the_acceptance_length(name):
    lines, rules = read(name)
    pattern = re.compile(rules.profile.metrics["accept_length"]["log"])
    values = [float(found["value"]) for line in lines if (found := pattern.search(line.text))]
    low, high = TOLD[name]["accept_length"]
    assert values and all(low <= value <= high for value in values), values
