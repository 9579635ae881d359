"""Reading on behind broken syntax: what else is wrong is found at its own place, and nothing is found that is not there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.lang.yaml_loader import load


@pytest.mark.parametrize(
    "text",
    [
        "a: {x: ${{ b }}, y: 1}\nk: 012\n",
        "a: [*x, 2]\nk: 012\n",
        "a: b: c\nk: 012\n",
        "a:\n\tb: 1\n  c: 1\nk: 012\n",
        "a: 'x\nk: 012\n",
        "a: 'x\nb: 'y'\nk: 012\n",
        "a: b\nc\nk: 012\n",
        "a: {b: 1\nk: 012\n",
        'a: "\\d"\nk: 012\n',
        "l:\n  - id: a\n  b: 1\nk: 012\n",
        "a: 1\n  b: 1\nk: 012\n",
    ],
)
def test_what_stands_behind_the_mistake_is_read(text):
    document, problems = load(text, "f.yaml")
    assert document is not None and document.data["k"] == "012"
    line = text.splitlines().index("k: 012") + 1
    assert len(problems) == 2
    assert (problems[-1].code, str(problems[-1].span)) == ("leading-zero", f"f.yaml:{line}:4")


def test_places_on_a_mended_line_are_those_of_the_file():
    document, _ = load("a: {x: ${{ it's }}, y: ${{ c }}, z: 7}\n", "f.yaml")
    assert document.data == {"a": {"x": "${{ it's }}", "y": "${{ c }}", "z": 7}}
    assert document.span(("a", "z")).column == 37
    assert document.within(("a", "y"), 4, 1).column == 28


def test_a_line_whose_meaning_was_guessed_is_known_as_such():
    document, _ = load("a:\n\tb: 1\nc: ${{ x }}\n", "f.yaml")
    assert document.is_guessed(document.span(("a", "b"))) and not document.is_guessed(document.span(("c",)))


def test_a_mend_that_does_not_help_is_given_up():
    """A quote over several lines of prose that never ends: closing it at its line would turn the prose into mistakes."""
    _, problems = load("a: 'it is\n  a long: story\n  with: no end\n", "f.yaml")
    assert [problem.code for problem in problems] == ["unclosed-quote"]


def test_a_key_over_two_lines_is_told_once():
    """Quoting what stands behind it does not help, however often it is done."""
    _, problems = load('f {a: b\n"two\n  "words\nk: 1\n', "f.yaml")
    assert [problem.code for problem in problems] == ["text-after-value"]


LINE = st.text("ab:-{}[]'\"$ #*&!%\t,x1", max_size=14)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINE, max_size=8))
def test_any_text_is_read_or_refused_with_places_inside_it(lines):
    text = "\n".join(lines)
    _, problems = load(text, "f.yaml")
    for problem in problems:
        span = problem.span
        assert 1 <= span.line <= len(lines) + 1 and span.column >= 1
        if span.line <= len(lines):
            assert span.column <= len(lines[span.line - 1]) + 1, (text, problem)
