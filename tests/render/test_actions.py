"""CI log groups: folded steps, annotations, and no line of a host that the runner would obey."""

from __future__ import annotations

import re

from hypothesis import given

from runbook.model.event import RunEnded, StepEnded, StepStarted
from runbook.render.actions import GroupedLines
from tests.render.histories import histories, thorough
from tests.render.test_summary import HEADER

COMMAND = re.compile(r"^\s*::(group|endgroup|error|warning)( [^:]*)?::")


def shown(*events) -> list[str]:
    lines = GroupedLines()
    return [line for event in events for line in lines.lines(event)]


def started(step: str, host: str = "a") -> StepStarted:
    return StepStarted(step=step, type="run", host=host, t=1.0)


def ended(step: str, verdict: str = "passed", host: str = "a", **more) -> StepEnded:
    status = {"passed": "passed", "slow": "unknown"}.get(verdict, "failed")
    return StepEnded(step=step, type="run", host=host, status=status, verdict=verdict, seconds=1.0, t=2.0, **more)


def test_a_step_is_a_group_and_its_verdict_stands_below_it():
    assert shown(HEADER, started("up"), ended("up")) == ["run r1: n", "::group::> up [a]", "::endgroup::", "ok up [a] 1s"]


def test_what_did_not_pass_is_annotated():
    lines = shown(started("up"), ended("up", "hung", kind="stopped", reason="50% done,\nthen: nothing"))
    assert lines[-1] == "::error title=up%3A hung/stopped::50%25 done,%0Athen: nothing"
    assert shown(started("up"), ended("up", "slow"))[-1].startswith("::warning ")


def test_targets_of_one_step_share_a_group_since_groups_do_not_nest():
    lines = shown(started("up", "a"), started("up", "b"), ended("up", host="a"), ended("up", host="b"))
    assert [line for line in lines if line.startswith("::")] == ["::group::> up [a]", "::endgroup::"]


def test_a_run_that_ends_inside_a_step_closes_its_group():
    assert "::endgroup::" in shown(started("up"), RunEnded(verdict="interrupted", exit_code=130, reason="SIGINT"))


@thorough(8)
@given(histories())
def test_the_runner_obeys_no_text_of_a_host(events):
    lines = GroupedLines()
    depth = 0
    for line in [line for event in events for line in lines.lines(event)]:
        assert "##[" not in line and "\n" not in line and "\r" not in line
        if line.lstrip().startswith("::"):
            found = COMMAND.match(line)
            assert found, line
            depth += {"group": 1, "endgroup": -1}.get(found[1], 0)
        assert depth in (0, 1)
