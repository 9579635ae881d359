"""The JSON object: its keys are public, its size is bounded, and what was cut is named."""

import json

import pytest

from runbook.model.event import Found, RunEnded, RunStarted, RunSuspended, StepEnded, StepStarted
from runbook.model.verdict import Diagnosis, Evidence, Finding
from runbook.render.summary import OBJECT_CAP, TEXT_CAP, summary

KEYS = {
    "run",
    "playbook",
    "state",
    "verdict",
    "kind",
    "exit_code",
    "reason",
    "steps",
    "findings",
    "cleanup",
    "left_behind",
    "next",
    "transcript",
}
HEADER = RunStarted(
    format=1, run="r1", version="0", playbook="p.yaml", playbook_text="", playbook_sha256="0" * 64, name="n", targets={}, vars={}, t=1.0
)
FILES = {"markdown": "/d/transcript.md", "html": None}


def step(name="a", verdict="passed", **more):
    status = {"passed": "passed", "slow": "unknown", "undecided": "unknown"}.get(verdict, "failed")
    return StepEnded(step=name, type="run", status=status, verdict=verdict, seconds=1.0, t=2.0, **more)


def test_a_run_that_ended_has_every_key():
    events = [HEADER, step(), RunEnded(verdict="passed", exit_code=0, reason="ok", cleanup="passed", t=3.0)]
    answer = summary(events, "/d", FILES)
    assert set(answer) == KEYS
    assert answer["state"] == "ended" and answer["cleanup"] == {"status": "passed"} and answer["left_behind"] == []
    assert answer["transcript"] == {"dir": "/d", "events": "/d/events.jsonl", "markdown": "/d/transcript.md", "html": None}
    assert answer["steps"] == [{"id": "a", "type": "run", "host": "", "status": "passed", "verdict": "passed", "seconds": 1.0}]


def test_a_suspended_run_names_its_expiry_and_what_stays():
    event = RunSuspended(
        verdict="slow", kind="on_track", exit_code=4, reason="r", step="a", expires=99.0, left_behind=["x"], next=["runbook cancel r1"]
    )
    answer = summary([HEADER, step(verdict="slow"), event], "/d", FILES)
    assert (
        answer["state"] == "suspended"
        and answer["expires"] == 99.0
        and answer["next"] == ["runbook cancel r1"]
        and answer["exit_code"] == 4
    )


def test_a_run_in_progress_has_no_verdict():
    answer = summary([HEADER, StepStarted(step="a", type="run")], "/d", FILES)
    assert answer["state"] == "running" and answer["verdict"] is None and answer["exit_code"] is None


def test_the_diagnosis_of_the_deciding_step_is_there():
    diagnosis = Diagnosis(verdict="hung", rule="stopped", reason="r", evidence=(Evidence(signal="state", value="T"),))
    events = [HEADER, step(verdict="hung", diagnosis=diagnosis), RunEnded(verdict="hung", exit_code=3, reason="r", failed_step="a")]
    assert summary(events, "/d", FILES)["diagnosis"]["rule"] == "stopped"


@pytest.mark.parametrize("count", [1, 400])
def test_the_object_is_bounded_and_says_what_was_cut(count):
    events = [HEADER]
    events += [step(f"s{n}", "failed", reason="x" * 5000) for n in range(count)]
    events += [Found(finding=Finding(code="c", text="y" * 5000)) for _ in range(count)]
    events += [
        RunEnded(
            verdict="failed", exit_code=1, reason="z" * 9000, failed_step="s0", left_behind=["l" * 3000] * count, next=["ü" * 2000] * count
        )
    ]
    answer = summary(events, "/d", FILES)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= OBJECT_CAP
    assert len(answer["reason"].encode()) <= TEXT_CAP and "events.jsonl" in answer["reason"]
    assert ("cut" in answer) == (count > 1)
