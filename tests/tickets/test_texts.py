"""Markers, cutting, and other trackers' markup: pure, so by property."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.render.marks import cell, code, fence, prose, table
from runbook.tickets.adf import document, text_of
from runbook.tickets.fit import cut_lines, shorten
from runbook.tickets.marker import is_about, mark, marked, safe_run
from runbook.tickets.markup import JOINER, Bullets, Code, Heading, Table, Text, blocks
from runbook.tickets.wiki import wiki
from tests.tickets.forge_stubs import adf_problem

LINES = st.lists(
    st.sampled_from(
        [
            "## Files",
            "## Evidence",
            "## The step: `x`",
            "text",
            "```text",
            "````",
            "```",
            "~~~",
            "<details>",
            "</details>",
            "é" * 30,
            "- x",
            "",
        ]
    )
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30)


@given(st.text(), st.text())
def test_a_marked_text_is_known_again_by_its_run_and_text(run, text):
    signed = mark(run, text)
    for line in (signed.hidden, signed.visible):
        assert marked(f"{text}\n\n{line}\n ") == signed and is_about(f"{text}\n{line}", run)
        assert marked(f"{text}\n{line}\nthanks") is None
    assert "--" not in safe_run(run) and not re.search(r"[\s<>]", safe_run(run))


@given(st.text(min_size=1), st.text(min_size=1))
def test_other_texts_have_other_marks(one, other):
    assert (mark("r", one) == mark("r", other)) == (one == other)


@given(LINES, st.integers(100, 2000))
@settings(max_examples=40)
def test_a_cut_text_closes_what_it_opened(lines, most):
    text = "\n".join([*lines, *["filler of a line"] * 200])
    kept = cut_lines(text, most)
    assert len(kept.encode()) <= most + 40
    fences, details = "", 0
    for line in kept.splitlines():
        found = re.match(r"(`{3,}|~{3,})", line)
        if fences:
            fences = "" if found and found[1].startswith(fences) and not line.strip(fences[0]) else fences
        elif found:
            fences = found[1]
        else:
            details = max(0, details + line.count("<details") - line.count("</details>"))
    assert not fences and not details


@given(LINES)
def test_a_text_that_fits_is_left_alone(lines):
    text = "\n".join(lines)
    assert shorten(text, 100_000) == text and cut_lines(text, 100_000) == text


def test_verdict_evidence_and_failing_step_go_last():
    parts = {name: f"## {name}\n\n" + f"{name} line\n" * 40 for name in ("Evidence", "The step: `up`", "Phases", "Files")}
    text = "# hung\n\nno progress\n\n" + "\n".join(parts.values())
    for most in (1900, 1500, 1000, 500):
        kept = shorten(text, most)
        assert kept.startswith("# hung\n\nno progress") and "*Cut to fit: without " in kept
        assert len(kept.encode()) <= most + 60
    assert "Evidence line" in kept
    assert "## Files" not in shorten(text, 1900) and "## The step" in shorten(text, 1900)


def test_a_heading_inside_a_fence_is_no_section():
    log = "## Files\n" + "a line of the log\n" * 100
    kept = shorten(f"# x\n\n## The step: `a`\n\n```text\nfirst\n{log}```\n\n## Files\n\n" + "- f\n" * 500, 1000)
    assert "## Files\na line of the log\n" in kept and kept.count("```") == 2 and "- f" not in kept


@given(WORDS, WORDS, st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=40)
def test_the_renderers_own_markdown_comes_through_as_text(word, other, log):
    """What people read in Jira is what they read on GitHub: escapes and all undone."""
    markdown = f"# {cell(word)}\n\n{prose(other)}\n\n{table(('signal', 'value'), [(word, other)])}\n\n- {prose(word)}\n\n{fence(log)}\n"
    found = list(blocks(markdown))
    plain = {text.strip().replace(JOINER, "") for text in _texts(found)}
    for text in (word, other):
        shown = _as_rendered(cell(text))
        assert not shown or shown in plain, (shown, plain)
    made = document(markdown, "runbook run r, body 0123456789abcdef")
    assert adf_problem(made) is None and marked("x\n" + text_of(made).splitlines()[-1])
    assert wiki(markdown, "last").endswith("\n\nlast")


def _texts(found):
    for block in found:
        match block:
            case Heading() | Text() | Code():
                yield block.text
            case Bullets():
                yield from block.items
            case Table():
                yield from (cell for row in block.rows for cell in row)


def _as_rendered(source: str) -> str:
    """What a Markdown renderer shows for an inline text."""
    tokens = MarkdownIt("commonmark").parseInline(source)[0].children or []
    return "".join(token.content for token in tokens).strip().replace(JOINER, "")


def test_code_spans_keep_their_backslashes():
    (block,) = blocks("`a\\_b` and a\\_b and " + code("x`y\\"))
    assert block.text == "a\\_b and a_b and x`y\\"
