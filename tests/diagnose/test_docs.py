"""A rule id printed in a transcript leads to its page."""

from __future__ import annotations

import re
from pathlib import Path

from runbook.diagnose.judge import RULES

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "verdicts.md"


def test_every_rule_has_a_section_in_the_order_in_which_they_are_tried() -> None:
    assert re.findall(r"(?m)^### (\w+)$", PAGE.read_text(encoding="utf-8")) == [rule.__name__ for rule in RULES]
