"""Thirty playbooks as users break them: every fault is reported in one go, at its place, with what to write instead.

tests/data/broken/expected.yaml says of each file what must be found; it was written before any output was looked at. `names` is what the
summary or the code must name, `hint` what the hint must contain. Nothing else may be reported: noise hides the faults.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from runbook.cli.main import exit_code

BROKEN = Path(__file__).parents[1] / "data" / "broken"
EXPECTED = yaml.safe_load((BROKEN / "expected.yaml").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_every_fault_is_reported_at_its_place_with_a_suggestion(name, capsys):
    assert exit_code(["validate", "--json", str(BROKEN / f"{name}.yaml")]) == 2
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    told = "\n".join(f"{one['line']}:{one['col']} {one['code']}: {one['summary']} [{one['hint']}]" for one in found)
    places = sorted((one["line"], one["col"]) for one in found)
    faults = EXPECTED[name]["faults"]
    assert places == sorted(tuple(map(int, fault["at"].split(":"))) for fault in faults), told
    for fault in faults:
        at_place = [one for one in found if f"{one['line']}:{one['col']}" == fault["at"]]
        assert any(
            fault["names"] in f"{one['code']} {one['summary']}" and (fault["hint"] or "") in f"{one['summary']} {one['hint']}"
            for one in at_place
        ), f"{fault}\n{told}"


def test_there_are_thirty_and_each_file_is_spoken_of():
    assert sorted(EXPECTED) == sorted(path.stem for path in BROKEN.glob("*.yaml") if path.stem != "expected")
    assert len(EXPECTED) == 30
    assert {len(case["faults"]) for case in EXPECTED.values()} <= {1, 2, 3, 4, 5}
