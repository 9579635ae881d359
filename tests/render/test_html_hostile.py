"""Nothing that a host says becomes markup, and no history is too odd for a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.model.event import MainEnded, Owed, Registered, RunEnded, Settled, StepEnded, VarsSet
from runbook.render.html import LIMIT, POLICY, html
from runbook.render.page.markup import VOID, text, visible
from runbook.render.page.style import sheet
from tests.render.histories import HOSTILE, histories, plain, steps, texts, times, words

OURS = frozenset(
    "html head meta title style body header main footer nav section div span p a h1 h2 h3 dl dt dd ul ol li table caption thead tbody tr th td"
    " code pre mark ins del b i small strong br blockquote details summary figure figcaption svg rect line polyline".split()
)
ATTRIBUTES = frozenset(
    "lang charset http-equiv content name class id href style role tabindex scope open aria-label aria-labelledby aria-hidden"
    " viewbox preserveaspectratio points x y x1 x2 y1 y2 width height".split()
)
HREF = re.compile(r"#[a-z]+|#e-?\d+|\./[A-Za-z0-9%._~/-]*")
STYLE = re.compile(r"left:-?[\d.]+%(;width:[\d.]+%)?")
CLASS = re.compile(r"[a-z0-9 ]+")
rare = st.one_of(
    st.builds(Owed, t=times, id=words, kind=words, step=steps, host=words),
    st.builds(Settled, t=times, id=words, how=words),
    st.builds(Registered, t=times, kind=st.sampled_from(["launch", "patch"]), step=steps, host=words, data=st.just({})),
    st.builds(VarsSet, t=times, step=steps, values=st.dictionaries(words, plain, max_size=2)),
    st.builds(MainEnded, t=times, verdict=words),
)


class Strict(HTMLParser):
    """Fails on an element, an attribute or a link that is not ours, and on one that is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self._check(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID, tag
        self._check(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def _check(self, tag, attrs):
        assert tag in OURS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name)
            shape = {"href": HREF, "style": STYLE, "class": CLASS}.get(name)
            assert shape is None or shape.fullmatch(value or ""), (tag, name, value)
            if name == "id":
                assert re.fullmatch(r"[a-z-]+|e-?\d+", value), value

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError("a comment")

    def handle_pi(self, data):
        raise AssertionError("a processing instruction")

    def unknown_decl(self, data):
        raise AssertionError("a declaration")


def parsed(page: str) -> Strict:
    """The page, walked by a parser that knows what we may write."""
    strict = Strict()
    strict.feed(page)
    strict.close()
    assert strict.open == [], "an element is left open"
    return strict


def seen(page: str) -> str:
    """The text between the tags, the style sheet aside."""
    return "".join(parsed(page.replace(sheet(), "")).words)


mixed = st.builds(
    lambda history, extra, at: [*history[: at % (len(history) + 1)], *extra, *history[at % (len(history) + 1) :]],
    histories(),
    st.lists(rare, max_size=4),
    st.integers(0, 20),
)


def check(history, limit):
    """What must hold of every page."""
    page = html(history, limit)
    shown = seen(page)
    hidden = {char for char in shown if not char.isprintable() and char not in "\n\t" and not char.isspace()}
    assert hidden == set(), f"{hidden!r} reach the reader"
    assert "\x1b" not in page and POLICY in page.replace("&#x27;", "'")
    assert len(page.encode("utf-8")) <= limit


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(mixed, st.sampled_from([LIMIT, 300_000, 120_000]))
def test_no_text_becomes_an_element_an_attribute_or_a_hidden_character_and_the_size_holds(history, limit):
    check(history, limit)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(mixed, st.sampled_from([LIMIT, 300_000, 120_000]))
def test_the_same_of_many_more_histories(history, limit):
    check(history, limit)


RESULTS = ("hits", "excluded", "diff", "claims", "argv", "env", "versions", "stdout", "stderr", "path", "pid", "log")


@pytest.mark.parametrize("type", ["assert", "launch", "patch", "expect_probe", "run"])
@pytest.mark.parametrize("odd", [5, True, 1.5, None, "<b>", [1, None, {"shape": ["<b>"]}], {"<b>": {"~unknown": 1}}], ids=repr)
def test_a_result_of_an_unexpected_shape_is_left_out_and_not_an_error(type, odd):
    end = StepEnded(step="s", type=type, status="failed", verdict="failed", seconds=1.0, result=dict.fromkeys(RESULTS, odd))
    check([end, RunEnded(verdict="failed", exit_code=1, reason="r", failed_step="s")], LIMIT)


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(60, 4_000))
def test_a_cut_text_is_no_longer_than_asked_and_ends_in_no_half_entity(value, most):
    shown = text(value, most)
    assert len(shown.encode()) <= most
    assert re.fullmatch(r"(?:[^&<>]|&(?:amp|lt|gt|quot|#x27);)*", shown), shown[-80:]


def test_terminal_sequences_go_and_what_cannot_be_seen_is_written_out():
    assert visible("\x1b[31mred\x1b[0m\x1b]0;title\x07 \x1b]8;;http://x\x1b\\link") == "red link"
    assert visible("\u202egnp.exe\u2066\u200b\ufeff") == r"\u202egnp.exe\u2066\u200b\ufeff"
    assert visible("\x00\x9b\udcff\r") == r"\x00\x9b\udcff\r"
    assert visible("שלום мир 漢字 é\n\t") == "שלום мир 漢字 é\n\t"
    assert all("\x1b" not in visible(each) for each in HOSTILE)


def test_a_gigabyte_of_one_line_costs_no_more_than_what_is_shown_of_it():
    huge = "<&\x1b[1m" * 2_000_000
    shown = text(huge, 1_000)
    assert len(shown.encode()) <= 1_000 and shown.endswith(" more characters)")
