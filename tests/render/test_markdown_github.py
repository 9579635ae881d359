"""The Markdown as GitHub renders it: by its own parser, tables, autolinks, strikethrough and raw HTML included."""

from __future__ import annotations

from html.parser import HTMLParser

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st

from runbook.render.markdown import markdown
from tests.render.histories import HOSTILE, histories, thorough
from tests.render.test_markdown import full_run, run

ALLOWED = frozenset("h1 h2 h3 h4 p br hr ul ol li table thead tbody tr th td pre code strong em blockquote details summary".split())
VOID = frozenset({"br", "hr"})
LINKS = ("see https://evil.example/x and www.evil.example or ftp://evil.example", "<https://evil.example>", "HTTP://evil.example")


class Page(HTMLParser):
    """Fails on any element that is not ours, and on one that is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED, f"<{tag} {attrs}>"
        assert {name for name, _ in attrs} <= {"align", "lang", "class", "start"}, attrs
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def rendered(text: str) -> Page:
    """The page that a reader on GitHub gets, before its sanitizer."""
    page = Page()
    page.feed(cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE))
    page.close()
    assert page.open == [], f"left open: {page.open}"
    return page


def test_a_whole_transcript_has_its_parts():
    page = rendered(markdown(full_run()))
    assert page.seen.count("h1") == 1 and page.seen.count("details") == page.seen.count("summary") > 0
    assert "table" in page.seen and "pre" in page.seen


@pytest.mark.parametrize("text", [*HOSTILE, *LINKS])
@pytest.mark.parametrize("budget", [3_000, 60_000])
def test_hostile_text_stays_text(text, budget):
    events = run(
        result={"stderr": text, "stdout": text, "claims": [{"that": text, "because": text, "outcome": "false", "note": text, "parts": []}]}
    )
    page = rendered(
        markdown([*events[:-1], *[type(events[-1])(verdict="failed", exit_code=1, reason=text, failed_step="check", next=[text])]], budget)
    )
    assert page.seen.count("h1") == 1


def test_an_address_can_be_read_and_copied():
    events = run()
    closing = type(events[-1])(verdict="failed", exit_code=1, reason=LINKS[0], failed_step="check")
    assert LINKS[0] in "".join(rendered(markdown([*events[:-1], closing])).text)


@thorough(8)
@given(histories(), st.integers(2_000, 30_000))
def test_any_history_in_any_budget_is_ours_alone(events, budget):
    rendered(markdown(events, budget))
