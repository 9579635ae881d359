"""Diagnostics for people and for programs."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.render.diagnostics import as_object, as_text, frame, one_text, summary_line

TEXT = "runbook: 1\nsteps:\n  - rum: x\n  - run: y\n"


def diagnostic(**changes):
    parts = {
        "code": "unknown-step",
        "summary": "unknown step type `rum`",
        "span": Span("book.yaml", 3, 5, 3),
        "hint": "did you mean `run`?",
    }
    return Diagnostic(**{**parts, **changes})


def test_a_problem_shows_its_place_its_line_and_what_to_type():
    assert one_text(diagnostic(), {"book.yaml": TEXT}) == (
        "book.yaml:3:5: error[unknown-step]: unknown step type `rum`\n"
        " 2 | steps:\n"
        " 3 |   - rum: x\n"
        "   |     ^^^\n"
        " 4 |   - run: y\n"
        "  hint: did you mean `run`?\n"
    )


def test_without_the_source_the_place_and_the_hint_still_stand():
    assert one_text(diagnostic(hint=None), {}) == "book.yaml:3:5: error[unknown-step]: unknown step type `rum`\n"
    assert one_text(diagnostic(span=None), {}).startswith("error[unknown-step]")


def test_tabs_do_not_move_the_caret():
    assert frame("\tab: x", 1, 4, 1)[-1] == frame("    ab: x", 1, 7, 1)[-1]


def test_a_span_over_several_lines_ends_at_its_line():
    assert frame("ab\ncd\n", 1, 2, 40) == [" 1 | ab", "   |  ^", " 2 | cd"]


def test_a_long_line_is_cut_around_the_caret():
    lines = frame("x" * 400 + "HERE" + "y" * 400, 1, 401, 4)
    assert "HERE" in lines[0] and len(lines[0]) < 200
    assert lines[0].index("HERE") == lines[1].index("^")


def test_control_characters_never_reach_the_terminal():
    text = one_text(diagnostic(summary="bad \x1b[31m", hint="\x07", span=Span("b", 1, 1)), {"b": "a\x1b[2Jb"})
    assert "\x1b" not in text and "\x07" not in text and "\\x1b[31m" in text


def test_the_json_form_has_the_documented_keys():
    data = as_object([diagnostic(), diagnostic(span=None, hint=None, severity=Severity.WARNING)])
    assert json.loads(json.dumps(data)) == {
        "verdict": "invalid",
        "diagnostics": [
            {
                "code": "unknown-step",
                "severity": "error",
                "file": "book.yaml",
                "line": 3,
                "col": 5,
                "summary": "unknown step type `rum`",
                "hint": "did you mean `run`?",
            },
            {
                "code": "unknown-step",
                "severity": "warning",
                "file": None,
                "line": None,
                "col": None,
                "summary": "unknown step type `rum`",
                "hint": None,
            },
        ],
    }


def test_the_last_line_counts():
    assert summary_line([], 1) == "no errors in 1 file"
    assert summary_line([diagnostic()], 2) == "1 error in 2 files"
    assert summary_line([diagnostic(), diagnostic(severity=Severity.WARNING)], 1) == "1 error, 1 warning in 1 file"
    assert summary_line([diagnostic(severity=Severity.WARNING)] * 2, 1) == "2 warnings in 1 file"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.integers(-1, 20), st.integers(-1, 400), st.integers(0, 400))
def test_no_text_and_no_place_breaks_the_frame(text, line, column, length):
    shown = as_text([diagnostic(span=Span("f", line, column, length))], {"f": text})
    assert all(char.isprintable() or char == "\n" for char in shown)
