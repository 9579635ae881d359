"""A sample that is dropped leaves its log lines to the next one."""

from __future__ import annotations

from runbook.diagnose.thin import carry_log
from runbook.model.sample import Blind
from tests.diagnose.stories import WEIGHTS, Story, shard


def test_a_dropped_sample_leaves_its_phase_marks_and_the_verdict_as_it_was() -> None:
    story = Story().at(0, log="start\n").at(1, log=WEIGHTS)
    for second in range(2, 14):
        story.at(second, log=shard(second))
    whole = story.judge(final=True, box_s=15)
    story.samples[1:3] = [carry_log(story.samples[1], story.samples[2])]
    thinned = story.judge(final=True, box_s=15)
    assert thinned.phase == whole.phase == "weights"
    assert (thinned.verdict, thinned.eta_s) == (whole.verdict, whole.eta_s)


def test_a_log_that_was_not_read_keeps_what_was_read_before() -> None:
    story = Story().at(0, log=WEIGHTS).at(1, log=None)
    assert carry_log(*story.samples).log == story.samples[0].log
    story.samples[0] = Story().at(0, log=None).samples[0]
    assert isinstance(story.samples[0].log, Blind) and carry_log(*story.samples) == story.samples[1]


def test_too_many_lines_are_counted() -> None:
    story = Story().at(0, log="x\n" * 300).at(1, log="y\n" * 300)
    log = carry_log(*story.samples).log.value
    assert (len(log.lines), log.skipped, log.lines[0], log.lines[-1]) == (400, 200, "x", "y")
