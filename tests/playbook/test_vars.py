"""Variables that use variables."""

from __future__ import annotations

import pytest

from runbook.lang.expressions import Problem, Unknown
from runbook.playbook.vars import Vars


def test_a_later_layer_wins_and_what_uses_it_follows():
    vars = Vars([{"port": 1, "url": "http://x:${{ vars.port }}"}, {"port": 2}], {})
    assert vars["url"] == "http://x:2" and vars["port"] == 2


def test_a_whole_expression_keeps_its_type():
    vars = Vars([{"a": [1, 2], "b": "${{ vars.a }}", "c": {"d": "${{ len(vars.b) }}"}}], {})
    assert vars["c"] == {"d": 2}


def test_a_value_is_worked_out_when_it_is_asked_for_and_then_kept():
    steps = {"up": {"pid": 1}}
    vars = Vars([{"pid": "${{ steps.up.pid }}", "bad": "${{ steps.nope.pid }}"}], {"steps": steps})
    assert vars["pid"] == 1
    steps["up"]["pid"] = 2
    assert vars["pid"] == 1


def test_a_circle_is_named_and_not_followed():
    vars = Vars([{"a": "${{ vars.b }}", "b": "${{ vars.a }}"}], {})
    with pytest.raises(Problem, match=r"vars\.b: .*a → b → a|a → b → a"):
        vars["a"]


def test_what_could_not_be_seen_stays_unknown():
    vars = Vars([{"a": "${{ steps.up.pid }}"}], {"steps": {"up": {"pid": Unknown("skipped")}}})
    assert isinstance(vars["a"], Unknown) and vars["a"].reason == "skipped"


def test_text_that_a_variable_gave_is_not_evaluated_again():
    vars = Vars([{"a": "${{ steps.log }}", "b": "${{ vars.a }}!"}], {"steps": {"log": "${{ 1 + 1 }}"}})
    assert vars["b"] == "${{ 1 + 1 }}!"
