"""The first cause of a death, told from its echoes. A new case is a file in tests/data/causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from runbook.diagnose.causes import causes
from runbook.diagnose.lines import matcher
from runbook.model.sample import Absent, ExitSample, Seen
from tests.diagnose.stories import Story, load_profile

CASES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parents[1] / "data" / "causes").glob("*.yaml"))
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_first_cause_is_named_and_its_echoes_are_not(case: dict[str, Any]) -> None:
    profile, wanted = load_profile(case["profile"]), case["expect"]
    rules = matcher(profile)
    found = causes([rules.read(line) for line in case["log"].splitlines()], rules)
    if wanted["cause"] is None:
        assert found.first is None
    else:
        assert found.first is not None and wanted["cause"] in found.first.line
        assert found.first.rank == wanted.get("rank", found.first.rank)
    assert len(found.survived) == wanted.get("survived", 0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_death_carries_its_kind_and_its_first_cause(case: dict[str, Any]) -> None:
    profile, wanted = load_profile(case["profile"]), case["expect"]
    ended = Seen(ExitSample(code=case["exit"].get("code"), signal=case["exit"].get("signal"), lived_s=71.0))
    story = Story(profile).at(0, log="").at(1, log=case["log"], exit=ended, processes=Absent()).at(2, exit=ended, processes=Absent())
    verdict = story.judge()
    assert verdict is not None
    assert (verdict.verdict, verdict.kind) == ("crashed", wanted["kind"])
    assert wanted["cause"] is None or wanted["cause"] in verdict.reason
