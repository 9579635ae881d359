"""The Markdown transcript: the reader's order, and nothing from a host can break its form."""

import re

from hypothesis import given
from hypothesis import strategies as st

from runbook.model.event import EvidenceSaved, RunEnded, StepEnded, StepStarted
from runbook.model.verdict import Diagnosis, Evidence
from runbook.render.markdown import cell, fence, markdown
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
