"""Filling nested data."""

import pytest

from runbook.lang.expressions import Unknown, template
from runbook.model.diagnostic import Span

SCOPE = {
    "vars": {"n": 3, "f": 1.5, "yes": True, "text": "a b", "list": [1], "none": None, "evil": "${{ secrets.X }}"},
    "steps": {"chat": Unknown("skipped")},
    "secrets": {"X": "hunter2"},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ vars.n }}", 3),
        (" ${{ vars.list }}\n", [1]),
        ("${{ vars.none }}", None),
        ("n=${{ vars.n }} f=${{ vars.f }} b=${{ vars.yes }} t=${{ vars.text }}", "n=3 f=1.5 b=true t=a b"),
        ("$${{ vars.n }} ${{ vars.n }}", "${{ vars.n }} 3"),
        ("no $ { } here", "no $ { } here"),
        ("${{ raw('x') }}", "x"),
    ],
)
def test_a_text_is_filled(text, value):
    found = template(text, SCOPE)
    assert found == (value, ()) and type(found.value) is type(value)


def test_values_at_any_depth_are_filled_and_keys_never():
    given = {"${{ vars.n }}": [{"a": "${{ vars.n }}"}, 5, None, True]}
    assert template(given, SCOPE).value == {"${{ vars.n }}": [{"a": 3}, 5, None, True]}
    assert given["${{ vars.n }}"][0]["a"] == "${{ vars.n }}"


def test_text_that_comes_out_is_never_evaluated():
    assert template("${{ vars.evil }}", SCOPE).value == "${{ secrets.X }}"
    assert template("x ${{ vars.evil }}", SCOPE).value == "x ${{ secrets.X }}"


def test_each_problem_has_its_path_and_place():
    given = {"a": ["${{ vars.nope }}", "x ${{ vars.list }} y ${{ vars.none }}"], "b": "${{ vars.n", "c": "${{ 1 + }}"}
    spans = {("a", 0): Span("f", 1, 2)}
    found = template(given, SCOPE, span_of=spans.get)
    assert [(problem.path, problem.source) for problem in found.problems] == [
        (("a", 0), "vars.nope"), (("a", 1), "vars.list"), (("a", 1), "vars.none"), (("b",), "vars.n"), (("c",), "1 +"),
    ]  # fmt: skip
    assert found.problems[0].span == Span("f", 1, 2) and found.problems[1].span is None
    assert "json(x)" in found.problems[1].text and "default" in found.problems[2].text and "never closed" in found.problems[3].text
    assert not any(problem.unknown for problem in found.problems)
    assert found.value == given


def test_an_unknown_is_marked_as_such_and_stands_in_the_value():
    found = template({"a": "${{ steps.chat.x }}", "b": "n ${{ steps.chat.x }}"}, SCOPE)
    assert [(problem.path, problem.text, problem.unknown) for problem in found.problems] == [
        (("a",), "skipped", True),
        (("b",), "skipped", True),
    ]
    assert isinstance(found.value["a"], Unknown) and isinstance(found.value["b"], Unknown)


def test_a_text_cannot_grow_without_bound():
    found = template("${{ vars.big }}x" * 10, {"vars": {"big": "y" * 2**20}})
    assert "grows beyond" in found.problems[-1].text
