"""Plain lines: readable without colour, one for each thing that people care about, and never silent for long."""

from runbook.model.event import Moved, PhaseReached, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.render.lines import Lines
from tests.render.test_summary import HEADER


def test_a_step_has_a_line_at_its_start_and_one_with_its_verdict():
    lines = Lines()
    lines.lines(HEADER)
    assert lines.lines(StepStarted(step="up", type="wait_healthy", name="Wait", host="box")) == ["> up – Wait [box]"]
    end = StepEnded(step="up", type="wait_healthy", host="box", status="failed", verdict="wrong_check", seconds=6.5, reason="empty body")
    assert lines.lines(end) == ["FAILED wrong_check up [box] 6.5s  empty body"]


def test_a_heartbeat_names_step_elapsed_time_box_and_what_moved_last():
    lines = Lines()
    lines.lines(StepStarted(step="up", type="wait_healthy", box_s=3600.0, t=100.0))
    lines.lines(Moved(step="up", host="", phase="weights", text="12/22 shards", elapsed_s=10.0))
    assert lines.heartbeat(160.0) == "  up: running for 1m of 1h; 12/22 shards"


def test_the_end_says_verdict_exit_code_reason_what_is_left_and_what_to_do():
    ended = RunEnded(
        verdict="crashed", kind="oom_gpu", exit_code=5, reason="why", cleanup="failed", left_behind=["box: pid 7"], next=["runbook show r"]
    )
    text = "\n".join(Lines().lines(ended))
    assert (
        "CRASHED/oom_gpu (exit 5): why" in text
        and "cleanup: failed" in text
        and "left behind: box: pid 7" in text
        and "next: runbook show r" in text
    )
    suspended = RunSuspended(verdict="slow", kind="on_track", exit_code=4, reason="why", step="up", expires=1.0, next=["runbook cancel r"])
    assert "SUSPENDED slow/on_track (exit 4): why" in "\n".join(Lines().lines(suspended))


def test_phases_of_single_ranks_are_left_to_the_transcript():
    lines = Lines()
    assert lines.lines(PhaseReached(step="up", server="s", phase="weights")) == ["  up: phase weights"]
    assert lines.lines(PhaseReached(step="up", server="s", phase="weights", rank=3, label="TP3")) == []


def test_text_from_a_host_cannot_steer_the_terminal():
    end = StepEnded(step="up", type="run", status="failed", verdict="failed", seconds=1.0, reason="\x1b]0;title\x07")
    assert Lines().lines(end) == [r"FAILED up 1s  \x1b]0;title\x07"]
