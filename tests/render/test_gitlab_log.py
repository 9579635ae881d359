"""GitLab CI folds a step, and only we can begin or end a fold."""

from __future__ import annotations

import re

from hypothesis import given

from runbook.model.event import RunEnded
from runbook.render.gitlab_log import SectionLines
from tests.render.histories import histories, thorough
from tests.render.test_actions import ended, started

MARK = re.compile(r"\x1b\[0Ksection_(start|end):(\d+):([A-Za-z0-9_]+)(?:\[collapsed=true\])?\r\x1b\[0K")


def shown(*events) -> list[str]:
    lines = SectionLines()
    return [line for event in events for line in lines.lines(event)]


def test_a_step_is_a_section_and_its_verdict_stands_below_it():
    assert shown(started("up"), ended("up", "hung", reason="why")) == [
        "\x1b[0Ksection_start:1:step_1_up[collapsed=true]\r\x1b[0K> up [a]",
        "\x1b[0Ksection_end:2:step_1_up\r\x1b[0K",
        "FAILED hung up [a] 1s  why",
    ]


def test_a_second_attempt_has_a_section_of_its_own_and_the_end_closes_the_last():
    lines = shown(started("up"), ended("up"), started("up"), RunEnded(verdict="interrupted", exit_code=130, reason="SIGINT", t=3.0))
    assert [found[1] + found[3] for line in lines if (found := MARK.search(line))] == [
        "startstep_1_up",
        "endstep_1_up",
        "startstep_2_up",
        "endstep_2_up",
    ]


@thorough(8)
@given(histories())
def test_every_section_that_begins_ends_and_no_text_of_a_host_is_a_marker(events):
    open_name = None
    for line in shown(*events):
        found = MARK.match(line)
        rest = line[found.end() :] if found else line
        assert "\x1b" not in rest and "\r" not in rest
        if found and found[1] == "start":
            assert open_name is None
            open_name = found[3]
        elif found:
            assert open_name == found[3]
            open_name = None
