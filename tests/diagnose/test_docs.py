"""A rule id printed in a transcript leads to its meaning, its source and its tests."""

from __future__ import annotations

import re

import pytest

from runbook.diagnose.judge import RULES, Rule
from tests.diagnose.rule_table import OWN, PAGE, ROOT, Own, page, source_of
from tests.diagnose.rule_table import test_file as file_of_tests

CITES = r'(?:\brule ?= ?|\b_answer\("\w+", )"(\w+)"'
"""How a diagnosis says by which rule it is."""


def test_the_page_of_rules_is_what_their_descriptions_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.diagnose.rule_table"


def test_every_rule_has_a_section_in_the_order_in_which_they_are_tried() -> None:
    known = [*(rule.__name__ for rule in RULES), *(rule.id for rule in OWN)]
    assert re.findall(r"(?m)^## (\w+)$", PAGE.read_text(encoding="utf-8")) == known


def test_every_rule_that_can_be_cited_is_on_the_page() -> None:
    """Whatever a diagnosis is made with, anywhere: a rule id in a transcript leads to the page, and the page to source and tests."""
    cited: set[str] = set()
    for path in (ROOT / "runbook").rglob("*.py"):
        cited |= set(re.findall(CITES, path.read_text(encoding="utf-8")))
    sections = set(re.findall(r"(?m)^## (\w+)$", PAGE.read_text(encoding="utf-8")))
    assert len(cited) > 20 and cited - sections == set()


@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.id)
def test_a_rule_of_a_step_is_named_in_its_source_and_its_tests(rule: Own) -> None:
    for file in (rule.source, rule.tests):
        assert f'"{rule.id}"' in (ROOT / file).read_text(encoding="utf-8"), file


def test_every_link_of_the_page_leads_to_a_file() -> None:
    links = re.findall(r"\]\((\.\.[^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(links) > len(RULES) and all((PAGE.parent / link).exists() for link in links)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_is_named_in_its_source_and_its_tests(rule: Rule) -> None:
    assert f"def {rule.__name__}(view: View)" in source_of(rule).read_text(encoding="utf-8")
    assert re.search(rf"\b{rule.__name__}\b", file_of_tests(rule).read_text(encoding="utf-8"))


@pytest.mark.parametrize("rule", [rule for rule in RULES if (rule.__doc__ or "").startswith("hung/")], ids=lambda rule: rule.__name__)
def test_a_hung_rule_says_when_it_fires_and_names_its_live_twins(rule: Rule) -> None:
    text = " ".join((rule.__doc__ or "").split())
    assert text.startswith(f"hung/{rule.__name__}: when ") and re.search(r"[Ii]ts live twins: ", text)
