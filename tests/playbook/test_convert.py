"""Bodies to structs once their values are known."""

from __future__ import annotations

import pytest

from runbook.model.units import Duration, Rung, Size
from runbook.playbook.convert import StepProblem, sketch, to_step
from runbook.playbook.shape import Shape, type_of
from tests.playbook.table import Match, Start, Stop


def test_units_arrive_as_units():
    step = to_step(Stop, {"step": "a", "ladder": ["TERM 15s"], "free": "1GiB"})
    assert step.ladder == [Rung("TERM 15s")] and step.free == Size(2**30)
    assert to_step(Start, {"command": ["a"], "settle": "1m"}).settle == Duration(60)


@pytest.mark.parametrize(
    ("body", "path", "summary"),
    [
        ({"command": ["a"], "port": "80"}, "port", "`port` must be a whole number, not the text `80`"),
        ({"command": ["a"], "settle": 3}, "settle", "the duration `3` has no unit"),
        ({}, "", "missing the key `command`"),
    ],
)
def test_a_value_that_does_not_fit_is_told_as_validate_would(body, path, summary):
    with pytest.raises(StepProblem) as caught:
        to_step(Start, body)
    assert (caught.value.path, caught.value.summary, str(caught.value)) == (path, summary, summary)


def test_text_that_looks_like_an_expression_is_still_refused_where_no_text_fits():
    """It may have come from a host: it is data now, and no number."""
    with pytest.raises(StepProblem):
        to_step(Start, {"command": ["a"], "port": "${{ 1 }}"})


def test_a_sketch_has_the_keys_that_are_there():
    body = {"match": [{"port": "${{ vars.x }}"}, {"cmdline": "${{ vars.y }}"}], "free": "${{ vars.z }}", "tree": "${{ vars.t }}"}
    step = sketch(Stop, body, Shape().visit(type_of(Stop), body).holes)
    assert step is not None
    assert step.match == [Match(port=1), Match(cmdline="${{ vars.y }}")] and step.free is not None and step.tree is True


def test_a_sketch_is_given_up_where_keys_would_have_to_be_invented():
    body = {"match": ["${{ vars.x }}", "${{ vars.y }}", {"port": 1}, "${{ vars.z }}"]}
    step = sketch(Stop, body, Shape().visit(type_of(Stop), body).holes)
    assert step is not None and step.match == [Match(port=1)]
    assert sketch(Start, {"command": ["a"], "port": "x"}, []) is None
