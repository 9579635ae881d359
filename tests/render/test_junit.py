"""JUnit: CI shows the step that decided, and never green for a run that did not pass."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given

from runbook.model.event import Found, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.model.verdict import Diagnosis, Evidence, Finding, status_of
from runbook.render.junit import junit
from runbook.render.story import tell
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER, step

ATTRIBUTES = {
    "testsuites": set(),
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}
"""What the schema of Jenkins' xunit plugin allows of that which we write: elements, where they stand, and their attributes."""


def valid(text: str) -> ElementTree.Element:
    """The document, after the checks that the schema would make."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites" and len(root) == 1
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag] or (
            element.tag == "testsuite" and set(element.attrib) == {*ATTRIBUTES["testsuite"]} - {"timestamp"}
        )
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if "time" in element.attrib:
            assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
    suite = root[0]
    cases = suite.findall("testcase")
    assert int(suite.get("tests", "")) == len(cases)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(attribute, "")) == len([case for case in cases if case.find(tag) is not None])
    return suite


def end(verdict: str = "passed", **more) -> RunEnded:
    return RunEnded(verdict=verdict, exit_code=0 if verdict == "passed" else 1, reason="why", t=9.0, **more)


def test_a_passed_run_is_green_with_a_testcase_for_each_step():
    suite = valid(junit([HEADER, step("a"), step("b"), end()]))
    assert [case.get("name") for case in suite.findall("testcase")] == ["a", "b"]
    assert (suite.get("failures"), suite.get("errors"), suite.get("time")) == ("0", "0", "8.000")


def test_the_verdict_is_in_the_properties_and_in_the_message_of_the_step_that_decided():
    diagnosis = Diagnosis(
        verdict="hung", rule="stopped", reason="r", evidence=(Evidence(signal="state", value="T"),), next=("kill -CONT 7",)
    )
    hung = step("up", "hung", kind="stopped", reason="rank 2 stands", diagnosis=diagnosis, result={"stderr": "last words\x1b[0m"})
    suite = valid(junit([HEADER, step("a"), hung, end("hung", kind="stopped", failed_step="up")]))
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert properties["verdict"] == "hung" and properties["kind"] == "stopped" and properties["run"] == "r1"
    assert properties["step.up.verdict"] == "hung/stopped" and properties["step.up.rule"] == "stopped"
    failure = suite.findall("testcase")[1].find("failure")
    assert failure is not None and failure.get("type") == "hung/stopped" and failure.get("message") == "hung/stopped: rank 2 stands"
    assert all(text in (failure.text or "") for text in ("state = T", "kill -CONT 7", "last words"))
    assert suite.get("failures") == "1"


@pytest.mark.parametrize(("verdict", "tag"), [("slow", "error"), ("undecided", "error"), ("unreachable", "error"), ("crashed", "failure")])
def test_an_answer_that_was_not_obtained_is_an_error_and_a_wrong_one_a_failure(verdict, tag):
    up = msgspec.structs.replace(step("up", verdict), status=status_of(verdict))
    suite = valid(junit([HEADER, up, end(verdict)]))
    assert suite.findall("testcase")[0].find(tag) is not None


def test_retries_count_as_their_last_attempt_and_ignored_failures_as_passed():
    events = [HEADER, step("a", "failed"), step("a", "passed", attempt=2), step("b", "failed", ignored=True, reason="known"), end()]
    suite = valid(junit(events))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    assert [case.findtext("system-out") for case in suite.findall("testcase")] == ["attempt 2", "failed, ignored: known"]


@pytest.mark.parametrize(
    "events",
    [
        [HEADER, step("a"), RunEnded(verdict="interrupted", exit_code=130, reason="SIGINT", t=3.0)],
        [HEADER, step("a"), RunEnded(verdict="failed", exit_code=1, reason="cleanup failed", cleanup="failed", t=3.0)],
        [HEADER, step("a")],
        [HEADER, StepStarted(step="a", type="run", t=2.0)],
        [HEADER, RunSuspended(verdict="slow", kind=None, exit_code=4, reason="r", step="a", expires=1.0)],
    ],
)
def test_a_run_that_did_not_pass_is_never_green(events):
    suite = valid(junit(events))
    assert int(suite.get("failures", "")) + int(suite.get("errors", "")) > 0


def test_what_is_missing_from_an_old_journal_is_said():
    suite = valid(junit([HEADER, step("a"), end(), Found(finding=Finding(code="torn_journal", text="12 bytes"))]))
    assert "torn_journal: 12 bytes" in (suite.findtext("system-out") or "")


@thorough(8)
@given(histories())
def test_any_history_is_a_valid_document(events):
    text = junit(events)
    suite = valid(text)
    assert all(char.isprintable() or char == "\n" for char in text)
    closing = tell(events).closing
    green = suite.get("failures") == suite.get("errors") == "0"
    assert not green or (closing is not None and closing.verdict == "passed")
    steps = {(e.step, e.host, e.item if isinstance(e, StepEnded) else None) for e in events if isinstance(e, StepEnded)}
    assert len(suite.findall("testcase")) >= len(steps)
