"""The Markdown transcript: the reader's order, and nothing from a host can break its form."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from runbook.model.event import EvidenceSaved, PhaseReached, RunEnded, SampleTaken, StepEnded, StepStarted
from runbook.model.gpu import GpuSample
from runbook.model.sample import Sample, Seen
from runbook.model.verdict import Diagnosis, Evidence
from runbook.render.budget import Budget
from runbook.render.html import html
from runbook.render.markdown import cell, fence, markdown
from runbook.render.marks import prose
from runbook.render.story import tell
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER

CLAIM = {"that": "a > 4", "because": "it must", "outcome": "false", "note": "", "parts": [{"source": "a", "value": "1.09"}]}


def run(verdict="failed", **more):
    diagnosis = Diagnosis(
        verdict=verdict, rule="some_rule", reason="why", evidence=(Evidence(signal="status", value=200, points_to=verdict),)
    )
    end = StepEnded(
        step="check", type="assert", status="failed", verdict=verdict, seconds=1.0, reason="why", diagnosis=diagnosis, t=2.0, **more
    )
    closing = RunEnded(verdict=verdict, exit_code=1, reason="why", failed_step="check", cleanup="passed", t=3.0, next=["look there"])
    return [HEADER, StepStarted(step="check", type="assert", t=1.5), end, EvidenceSaved(step="check", file="evidence/x", bytes=3), closing]


def test_the_verdict_comes_first_then_evidence_then_the_failing_step_then_the_rest():
    text = markdown(run(result={"claims": [CLAIM]}))
    places = [text.index(part) for part in ("# n: failed", "## Evidence", "## The step: `check`", "## All steps", "## Files")]
    assert places == sorted(places)
    assert "some\\_rule" in text or "`some_rule`" in text
    assert "a \\> 4" in text or "`a > 4`" in text
    assert "1.09" in text and "it must" in text and "Nothing was left behind" in text and "look there" in text


def test_the_last_lines_of_a_failing_command_are_shown():
    events = run(result={"stderr": "\n".join(f"line {n}" for n in range(100))})
    text = markdown(events)
    assert "line 99" in text and "line 69" not in text.replace("line 699", "")


def test_what_excludes_the_other_explanations_of_a_silence_is_shown_for_a_step_that_passed():
    silent = StepEnded(
        step="seen", type="expect_probe", status="passed", verdict="passed", seconds=1.0, reason="not_reached", t=1.8,
        result={"outcome": "not_reached", "hits": [], "excluded": [{"explanation": "stale bytecode ran", "by": "the patched code | reports"}]},
    )  # fmt: skip
    events = run(result={"claims": [CLAIM]})
    text = markdown([*events[:2], StepStarted(step="seen", type="expect_probe", t=1.7), silent, *events[2:]])
    assert "| stale bytecode ran | the patched code \\| reports |" in text


@given(st.text())
def test_no_text_breaks_a_table_cell(text):
    made = cell(text)
    assert "\n" not in made and "\r" not in made
    assert not re.search(r"(?<!\\)(\\\\)*\|", made)


@given(st.text(alphabet="`~\nab", max_size=200))
def test_no_text_closes_its_own_fence(text):
    lines = fence(text).splitlines()
    ticks = re.match(r"`+", lines[0])[0]
    assert not any(line.strip().startswith(ticks) for line in lines[1:-1])


@given(st.text(max_size=300))
def test_any_output_of_a_host_leaves_fences_closed(text):
    made = markdown(run(result={"stderr": text, "claims": [CLAIM]}))
    fences = [line for line in made.splitlines() if re.match(r"^`{3,}", line)]
    assert len(fences) % 2 == 0


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def html_of(text: str) -> str:
    """All raw HTML that a Markdown reader would hand to a browser."""
    found = []
    for token in MARKDOWN.parse(text):
        for part in [token, *(token.children or [])]:
            if part.type in ("html_block", "html_inline"):
                found.append(part.content)
            assert part.type not in ("link_open", "image"), f"a link from a host's text: {part.attrs}"
    return "\n".join(found)


def has_room(text: str) -> None:
    """What every transcript keeps: its form, and nothing that steers a reader's screen, page or tracker."""
    opened = [line for line in text.splitlines() if re.match(r"^`{3,}", line)]
    assert len(opened) % 2 == 0
    assert all(char.isprintable() or char in "\n\u2060" for char in text)
    tags = re.findall(r"<[^>]*>?", html_of(text))
    assert set(tags) <= {"<details>", "</details>", "<summary>", "</summary>", "<code>", "</code>"}
    assert all(tags.count(tag) == tags.count(f"</{tag[1:]}") for tag in ("<details>", "<summary>", "<code>"))
    prose = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", text)
    assert not re.search(r"(?m)^/\w|^::", prose), "a quick action or a workflow command"


@thorough(8)
@given(histories(), st.integers(2_000, 20_000))
def test_any_history_fits_any_budget_with_its_verdict_and_its_form(events, budget):
    text = markdown(events, budget)
    assert len(text.encode()) <= budget
    has_room(text)
    closing = tell(events).closing
    assert text.startswith("# ")
    assert (f": {cell(closing.verdict)}" if closing else "still running") in text.splitlines()[0]
    step = tell(events).deciding()
    assert ("## The step: " in text) == (step is not None)
    assert ("## Evidence" in text) == (step is not None and step.end.diagnosis is not None)


@thorough(5)
@given(histories(), st.integers(2_000, 9_000))
def test_a_limit_in_characters_counts_characters(events, limit):
    text = markdown(events, Budget(chars=limit))
    assert len(text) <= limit
    has_room(text)


def full_run() -> list:
    """A failing run with something for every section."""
    events = run(result={"stderr": "\n".join(f"line {n}" for n in range(100))})
    patch = StepEnded(step="taps", type="patch", status="passed", verdict="passed", seconds=1.0, result={"diff": "+x\n" * 900}, t=1.2)
    launch = StepEnded(
        step="srv",
        type="launch",
        status="passed",
        verdict="passed",
        seconds=1.0,
        result={"argv": ["serve", "--x=a b"]},
        reason="r" * 250,
        t=1.4,
    )
    sample = [
        SampleTaken(
            step="srv",
            t=t,
            sample=Sample(t=t, host="h", host_t=t, boot_id="b", gpus=Seen((GpuSample(index=0, name="g", used=int(t), total=9),))),
        )
        for t in (1.2, 2.2)
    ]
    return [HEADER, patch, launch, *sample, *([launch] * 40), PhaseReached(step="check", server="s", phase="load", t=1.6), *events[1:]]


@pytest.mark.slow
def test_parts_go_in_one_fixed_order_and_the_end_says_which_and_where_the_whole_is():
    whole = markdown(full_run(), 200_000)
    assert "Cut to fit" not in whole and "serve '--x=a b'" in whole and "What moved" in whole
    heads = ["Raw output", "What moved", "Environment", "All steps"]
    gone: list[str] = []
    for budget in range(len(whole.encode()), 2_000, -800):
        text = markdown(full_run(), budget)
        missing = [head for head in heads if f"## {head}" not in text]
        assert set(gone) <= set(missing), f"{gone} came back at {budget}"
        gone += [head for head in heads if head in missing and head not in gone]
        assert "## Evidence" in text and "line 99" in text and "## The step: `check`" in text
        assert "Cut to fit" in text or not missing
    assert gone.index("Raw output") < gone.index("What moved") < gone.index("Environment"), gone
    assert "left out: raw output, plots" in text and "events.jsonl" in text and "--format html" in text


def test_a_budget_that_cannot_hold_the_verdict_is_refused():
    with pytest.raises(ValueError, match=r"2,000"):
        markdown(run(), 1_999)


def test_what_our_sentences_mark_as_code_stays_code_and_addresses_can_be_copied():
    assert cell("step `a|b` of root@box, see @all") == "step `a\\|b` of root@box, see @\u2060all"
    assert prose("1. not a list") == "1\\. not a list" and prose("/close") == "\\/close" and prose("# x") == "\\# x"


def test_a_name_inside_a_fold_opens_no_element():
    """Inside a tag's own lines Markdown's escapes mean nothing."""
    name = "<img src=x onerror=alert(1)>"
    has_room(markdown([HEADER, StepEnded(step=name, type="run", status="passed", verdict="passed", seconds=1.0, result={"stdout": "x"})]))


def test_what_was_masked_is_counted_by_kind():
    events = run(result={"stderr": "login ***HF_TOKEN*** and ***hf-token***, ***HF_TOKEN***"})
    assert "Masked in this transcript: HF\\_TOKEN ×2, hf-token ×1." in markdown(events)
    assert "HF_TOKEN ×2, hf-token ×1" in html(events)
    assert "Masked" not in markdown(run())


def test_phases_stand_beside_what_they_usually_take():
    phases = [{"name": name, "start": 1.0, "seconds": 90.0, "ranks": []} for name in ("weights", "ready")]
    times = {"runs": 3, "shortest_s": 60.0, "median_s": 70.0, "longest_s": 80.0}
    usual = {"ready": {"name": "ready", **times}, "phases": [{"name": "weights", **times, "runs": 1}]}
    table = markdown(run(result={"phases": phases, "usual": usual})).split("## Phases")[1]
    assert "1m to 1m20s (1 run)" in table and "1m to 1m20s (3 runs)" in table and "usually" in table
    assert "usually" not in markdown(run(result={"phases": phases}))
