"""Running a part of a playbook: tags, a later start, somebody who is asked before each step; and the step that asks."""

from __future__ import annotations

import pytest

from runbook.model.event import StepEnded
from tests.engine.play import play

BOOK = """\
runbook: 1
hosts: {box: local}
steps:
  - {id: one, say: {value: 1}, tags: a}
  - block:
      - {id: two, say: passed}
      - {id: three, say: passed, tags: [c]}
    tags: [b]
    when: steps.one.value == 1
    always:
      - {id: tidy, say: passed}
  - set: {x: 5}
  - {id: four, say: {value: '${{ vars.x }}'}, tags: a}
always:
  - {id: last, say: passed, tags: z}
"""


def ran(tmp_path, text=BOOK, **options):
    ended, events, said = play(text, tmp_path, **options)
    reasons = {event.step: event.reason for event in events if isinstance(event, StepEnded) and event.status == "skipped"}
    return ended, [step for step, _ in said], reasons


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, ["one", "two", "three", "tidy", "four", "last"]),
        ({"tags": ["a", "b"], "skip_tags": ["c"]}, ["one", "two", "tidy", "last"]),
        ({"skip_tags": ["b", "z"]}, ["one", "four"]),
        ({"tags": ["z"]}, ["last"]),
        ({"start_at": "s05_set"}, ["four", "last"]),
    ],
)
def test_chosen_steps_run_and_what_cleans_up_runs_as_ever(tmp_path, options, steps):
    _, said, reasons = ran(tmp_path, **options)
    assert said == steps
    assert not set(said) & set(reasons), "each step that did not run says why"


def test_a_block_that_is_left_out_as_a_whole_does_not_ask_for_its_condition(tmp_path):
    ended, said, reasons = ran(tmp_path, start_at="s05_set")
    assert ended.verdict == "passed" and said == ["four", "last"]
    assert reasons["two"] == "before --start-at s05_set"


def test_what_refers_to_a_step_that_was_left_out_is_unknown_with_that_reason(tmp_path):
    ended, _, _ = ran(tmp_path, start_at="two")
    assert ended.verdict == "undecided" and "step `one` ended skipped: before --start-at two" in ended.reason
    ended, _, _ = ran(tmp_path / "set", start_at="four")
    assert ended.verdict == "undecided" and "`vars.x` is set by step `s05_set`, which did not run" in ended.reason


class Typist:
    """Somebody at a terminal who types these lines, then nothing more."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.asked: list[str] = []

    def __call__(self, text, seconds, cancel):
        self.asked.append(text)
        return self.lines.pop(0) if self.lines else None


def test_before_each_step_somebody_says_what_becomes_of_it(tmp_path):
    typist = Typist("", "s", "what?", "run", "c")
    ended, said, reasons = ran(tmp_path, ask=typist, step=True)
    assert ended.verdict == "passed" and said == ["one", "three", "tidy", "four", "last"]
    assert reasons == {"two": "skipped at the prompt"}
    assert [text.split()[1] for text in typist.asked] == ["one", "two", "three", "three", "s05_set"]


def test_quitting_is_an_interrupt_that_cleans_up(tmp_path):
    ended, said, _ = ran(tmp_path, ask=Typist("r", "q"), step=True)
    assert (ended.verdict, ended.exit_code) == ("interrupted", 130) and said == ["one", "tidy", "last"]


PAUSE = "runbook: 1\nhosts: {box: local}\nsteps:\n  - {id: p, pause: %s}\n  - {id: s, say: {value: '${{ steps.p.answer }}'}}\n  - assert: steps.s.value == '%s'\n"


@pytest.mark.parametrize(
    ("pause", "lines", "answer"),
    [
        ("{prompt: Go?, default: 'no'}", ("yes",), "yes"),
        ("{prompt: Go?, default: 'no'}", ("",), "no"),
        ("{prompt: Go?, default: 'no'}", (None,), "no"),
        ("Look!", ("",), ""),
        ("{for: 1ms}", (None,), ""),
        ("{prompt: Go?, default: 'no'}", None, "no"),
        ("{for: 1ms}", None, ""),
    ],
)
def test_a_pause_gives_what_was_typed_or_its_default(tmp_path, pause, lines, answer):
    ended, _, _ = play(PAUSE % (pause, answer), tmp_path, ask=None if lines is None else Typist(*lines))
    assert ended.verdict == "passed", ended.reason


@pytest.mark.parametrize(("ask", "verdict"), [(None, "refused"), (Typist(), "undecided")])
def test_a_question_without_a_default_needs_an_answer(tmp_path, ask, verdict):
    assert play(PAUSE % ("Go?", ""), tmp_path, ask=ask)[0].verdict == verdict
