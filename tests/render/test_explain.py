"""A verdict in plain words: what it rests on, how sure, what was not seen, what to do."""

from __future__ import annotations

import pytest
from hypothesis import given

from runbook.model.event import RunEnded, StepStarted
from runbook.model.verdict import EXIT_CODES, Culprit, Diagnosis, Evidence
from runbook.render.explain import MEANS, explain
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER, step

HUNG = Diagnosis(
    verdict="hung",
    kind="stopped",
    rule="stopped",
    reason="rank 2 stands",
    confidence="proven",
    phase="weights",
    quiet_s=12.0,
    culprit=Culprit(host="box", pid=7, rank=2, title="sched"),
    evidence=(Evidence(signal="state", value="T", points_to="hung"),),
    blind=("io: permission denied",),
    next=("kill -CONT 7",),
)


def hung_run() -> list:
    return [
        HEADER,
        step("up", "hung", diagnosis=HUNG),
        RunEnded(verdict="hung", kind="stopped", exit_code=3, reason="rank 2 stands", failed_step="up"),
    ]


def test_it_tells_the_rule_the_evidence_the_certainty_the_blind_spots_and_the_next_step():
    text = explain(hung_run(), {"stopped": "a rank in state T in two samples"})
    wanted = [
        "hung/stopped",
        "rank 2 stands",
        "two samples",
        "is stopped",
        "rank 2, sched, pid 7",
        "proven",
        "12s",
        "permission denied",
        "kill -CONT 7",
    ]
    places = [text.index(part) for part in wanted]
    assert places[0] == 0 and text.rstrip().endswith("docs/reference/rules.md#stopped")
    assert text.index("Not seen") < text.index("What to do")


def test_bytes_are_told_in_the_unit_that_people_read():
    seen = (Evidence(signal="read", value=102200.0, unit="B"), Evidence(signal="gpu0_memory", value=629145600, unit="B"))
    text = explain(
        [HEADER, step("up", "slow", diagnosis=Diagnosis(verdict="slow", rule="slow", reason="x", evidence=seen)), *hung_run()[2:]]
    )
    assert "read: 99.8KiB\n" in text and "gpu0 memory: 600MiB\n" in text


def test_a_false_assertion_is_told_with_its_values():
    claim = {
        "that": "width == 192",
        "outcome": "false",
        "because": "three layers",
        "note": "",
        "parts": [{"source": "width", "value": "64"}],
    }
    end = step("check", "failed", result={"claims": [claim]})
    end = type(end)(**{**{name: getattr(end, name) for name in end.__struct_fields__}, "type": "assert"})
    text = explain([HEADER, end, RunEnded(verdict="failed", exit_code=1, reason="long " * 99, failed_step="check")])
    assert "width == 192 does not hold: width is 64 (three layers)" in " ".join(text.split()) and "long long" not in text


def test_a_run_that_goes_on_says_where_it_is():
    assert "it is at up" in explain([HEADER, StepStarted(step="up", type="run")])


@pytest.mark.parametrize("width", [30, 40, 80])
def test_it_fits_a_narrow_terminal(width):
    assert max(map(len, explain(hung_run(), {}, width).splitlines())) <= max(width, len("More: docs/reference/rules.md#stopped"))


def test_every_verdict_has_a_meaning():
    assert set(MEANS) == set(EXIT_CODES) - {"invalid"}


@thorough(6)
@given(histories())
def test_any_history_can_be_explained_and_steers_nothing(events):
    assert all(char.isprintable() or char == "\n" for char in explain(events))
