"""Keys that slipped away from the left edge, and keys whose colon or blank is missing: each is one mistake with one message."""

import pytest

from runbook.lang.yaml_edge import Edge
from runbook.lang.yaml_loader import load

EDGE = Edge(frozenset({"top", "steps", "always"}), frozenset({"always"}))


@pytest.mark.parametrize(
    ("text", "place", "data"),
    [
        ("top: 1\n steps: [a]\n", "2:2", {"top": 1, "steps": ["a"]}),
        ("top:\n  a: 1\n steps:\n  - b\n", "3:2", {"top": {"a": 1}, "steps": ["b"]}),
        ("top: {a: 1}\n  steps:\n    - b\n", "2:3", {"top": {"a": 1}, "steps": ["b"]}),
        ("steps:\n  - a\n always:\n  - b\n", "3:2", {"steps": ["a"], "always": ["b"]}),
        ("  top: 1\nsteps: [a]\n", "1:3", {"top": 1, "steps": ["a"]}),
        ("# what\n\n top: 1\nsteps: [a]\n", "3:2", {"top": 1, "steps": ["a"]}),
    ],
)
def test_a_key_of_the_left_edge_is_read_as_one(text, place, data):
    document, problems = load(text, "f.yaml", EDGE)
    assert [(one.code, str(one.span), one.hint) for one in problems] == [("indented-key", f"f.yaml:{place}", "begin it in column 1")]
    assert document.data == data


def test_what_may_stand_in_an_item_is_no_key_of_the_left_edge_there():
    _, problems = load("steps:\n- a: 1\n  b: 2\n always: [c]\n", "f.yaml", EDGE)
    assert [one.code for one in problems] == ["bad-indentation"]
    document, problems = load("steps:\n- a: 1\n  always: [c]\n", "f.yaml", EDGE)
    assert problems == [] and document.data == {"steps": [{"a": 1, "always": ["c"]}]}


def test_a_file_that_is_indented_as_a_whole_is_right():
    assert load("  top: 1\n  steps: [a]\n", "f.yaml", EDGE)[1] == []


def test_an_unknown_first_key_further_right_than_the_others():
    document, problems = load("  a: 1\nb: 2\n", "f.yaml")
    assert [(one.code, str(one.span)) for one in problems] == [("bad-indentation", "f.yaml:1:3")]
    assert document.data == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "code", "hint", "data"),
    [
        ("a {b: 1}\nk: 2\n", "key-without-colon", "write `a: {b: 1}`", {"a": {"b": 1}, "k": 2}),
        ("a{b: 1}  # c\nk: 2\n", "key-without-colon", "write `a: {b: 1}`", {"a": {"b": 1}, "k": 2}),
        ("a:{b: 1}\nk: 2\n", "missing-blank", "write `a: {b: 1}`", {"a": {"b": 1}, "k": 2}),
        ("a:5m\nk: 2\n", "missing-blank", "write `a: 5m`", {"a": "5m", "k": 2}),
        ("a 1\nk: 2\n", "missing-colon", "write `a: 1`; text over several lines begins with `|` or `>`", {"a": 1, "k": 2}),
        ("k:\n  a:5m\n\n  b: 2\n", "missing-blank", "write `a: 5m`", {"k": {"a": "5m", "b": 2}}),
        ("- a {b: [c]}\n- d {e: 1, f: 2}\n", "key-without-colon", "write `a: {b: [c]}`", [{"a": {"b": ["c"]}}, {"d": {"e": 1, "f": 2}}]),
    ],
)
def test_a_missing_colon_or_blank_is_one_mistake(text, code, hint, data):
    document, problems = load(text, "f.yaml")
    assert (problems[0].code, problems[0].hint) == (code, hint)
    assert [one.code for one in problems] == [code] * (2 if "d {" in text else 1)
    assert document.data == data


def test_text_that_goes_on_is_no_key_without_a_colon():
    _, problems = load("k: a\n  b\n  c: d\n", "f.yaml")
    assert [(one.code, str(one.span)) for one in problems] == [("unexpected-mapping", "f.yaml:3:4")]


def test_brackets_in_a_key_that_are_closed_there_are_its_own():
    document, problems = load("x{y} z: 1\nx[0] y: 2\n", "f.yaml")
    assert problems == [] and document.data == {"x{y} z": 1, "x[0] y": 2}


def test_one_line_with_two_mistakes_of_indentation_is_told_once():
    _, problems = load("l:\n- a: 1\n  b: 2\n b: 3\n", "f.yaml")
    assert [one.code for one in problems] == ["bad-indentation"]
