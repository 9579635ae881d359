"""The profiles in the documentation are valid, and every packaged profile and warning is told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runbook.cli.profiles import PACKAGED, profiles
from runbook.playbook import advice_rules

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "writing_profiles.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "concepts" / "profiles.md").read_text(encoding="utf-8")
BLOCKS = [
    text for text in re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL) if re.search(r"^profile:", text, re.MULTILINE)
]


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_every_profile_in_the_guide_is_valid(text):
    name = re.search(r"^profile: (\w+)", text, re.MULTILINE)
    assert name
    profile, found = profiles().check(f"{name[1]}.yaml", text.encode())
    assert profile is not None and not found, [f"{one.span}: {one.summary}" for one in found]


def test_the_page_names_every_packaged_profile_and_says_which_are_untried():
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", PAGE, re.MULTILINE))
    assert set(rows) == {path.stem for path in PACKAGED.glob("*.yaml")}
    assert {name for name, tried in rows.items() if "untried" in tried} == {name for name in rows if profiles().read(name).untried}


def test_the_page_names_every_warning():
    source = Path(advice_rules.__file__).read_text(encoding="utf-8")
    given = set(re.findall(r'yield \(?\s*"([a-z-]+)",\s', source))
    table = PAGE[PAGE.index("| code |") : PAGE.index("## What a health check costs")]
    assert given == set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) - {"code"}
