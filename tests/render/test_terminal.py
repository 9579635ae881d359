"""The live terminal: one line a finished step, an assertion with what it saw, the running steps below."""

from __future__ import annotations

import io

import msgspec

from runbook.model.event import AnyEvent, Found, Moved, PhaseReached, RunEnded, StepEnded, StepStarted
from runbook.model.verdict import Finding
from runbook.render.story import tell
from runbook.render.terminal import Terminal, running_line
from tests.render.test_summary import HEADER

WIDE = [{"source": "steps.seen.hits", "value": "[" + "{hidden: 64}, " * 40 + "]"}, {"source": "h.hidden.shape[-1]", "value": "64"}]
CLAIMS = [
    {"that": "any(h.hidden.shape[-1] == 192 for h in hits)", "because": "three layers", "outcome": "false", "note": "", "parts": WIDE},
    {"that": "accept > 4", "because": "", "outcome": "false", "note": "", "parts": [{"source": "accept", "value": "1.01"}]},
    {"that": "1 == 1", "because": "", "outcome": "true", "note": "", "parts": []},
]


def shown(*events: AnyEvent, width: int = 100) -> str:
    """What stands on the screen after these events."""
    terminal = Terminal(io.StringIO(), record=True)
    terminal.console.width = width
    for event in (HEADER, *events):
        terminal.follow(event)
    return terminal.console.export_text()


def ended(**more) -> StepEnded:
    """A step that passed, with changes."""
    return msgspec.structs.replace(
        StepEnded(step="up", type="run", host="box", status="passed", verdict="passed", seconds=6.5, reason="why"), **more
    )


def test_a_finished_step_shows_mark_id_time_name_and_reason():
    line = shown(StepStarted(step="up", type="run", name="Wait for it", host="box"), ended()).splitlines()[-1]
    assert line.split() == ["✓", "up", "6.5s", "Wait", "for", "it:", "why"]


def test_a_step_that_did_not_pass_says_its_verdict_and_kind():
    assert "✗ up" in (text := shown(ended(status="failed", verdict="crashed", kind="oom_gpu"))) and "crashed/oom_gpu: why" in text


def test_a_failed_assertion_shows_every_claim_that_does_not_hold_with_what_it_saw():
    text = shown(ended(step="check", type="assert", status="failed", verdict="failed", reason="long " * 100, result={"claims": CLAIMS}))
    assert "failed: 2 of 3 do not hold" in text
    assert "h.hidden.shape[-1] = 64" in text and "accept = 1.01" in text and "three layers" in text
    assert "{hidden: 64}" not in text, "a whole list of hits stands in the transcript"
    assert "1 == 1" not in text and "long long" not in text


def test_movement_is_for_the_running_rows_and_phases_stay():
    text = shown(
        PhaseReached(step="up", server="server", phase="weights"), Moved(step="up", host="box", phase="weights", text="3/22", elapsed_s=1.0)
    )
    assert "up: phase weights" in text and "3/22" not in text


def test_a_running_step_shows_time_box_phase_and_what_moves():
    moved = Moved(step="up", host="box", phase="weights", text="3/22 shards", elapsed_s=1.0)
    (step,) = tell([StepStarted(step="up", type="run", host="box", box_s=2700.0, t=100.0), moved]).running()
    first, later = (str(running_line(step, now)) for now in (160.0, 160.2))
    assert first[2:] == "up weights  1m of 45m  3/22 shards"
    assert first[0] != later[0], "it turns"


def test_targets_are_named_only_where_a_run_has_several():
    both = msgspec.structs.replace(HEADER, targets={"gpu": [{"target": "a"}, {"target": "box"}]})
    assert "[box]" in shown(both, ended()) and "[box]" not in shown(ended())


def test_a_reason_of_a_page_is_cut_in_the_last_line_and_the_way_on_stays():
    text = shown(RunEnded(verdict="failed", exit_code=1, reason="x" * 5000, cleanup="passed", next=["runbook show r"]))
    assert text.count("x") < 500 and "FAILED (exit 1)" in text and "next: runbook show r" in text


def test_text_from_a_host_cannot_steer_the_terminal():
    evil = "\x1b]0;title\x07\x9b2J"
    closing = RunEnded(verdict="failed", exit_code=1, reason=evil, left_behind=[evil])
    text = shown(ended(status="failed", verdict="failed", reason=evil), Found(finding=Finding(code="c", text=evil)), closing)
    assert text.count(r"\x1b]0;title\x07\x9b2J") == 4
    moved = Moved(step="up", host="box", phase=None, text=evil, elapsed_s=1.0)
    (step,) = tell([StepStarted(step="up", type="run", t=0.0), moved]).running()
    assert not {"\x1b", "\x07", "\x9b"} & set(text + str(running_line(step, 1.0)))
