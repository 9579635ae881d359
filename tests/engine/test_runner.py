"""Flow: what runs after what, and which verdict a run ends with."""

import pytest

from runbook.model.event import StepEnded
from tests.engine.play import play

HEAD = "runbook: 1\nname: t\nhosts: {a: local}\n"


def ids(said):
    return [step for step, _ in said]


def ends(events):
    return {event.step: event for event in events if isinstance(event, StepEnded)}


def test_steps_run_in_order_and_the_first_failure_ends_the_main_part(tmp_path):
    ended, _events, said = play(HEAD + "steps:\n- {id: a, say: passed}\n- {id: b, say: crashed}\n- {id: c, say: passed}\n", tmp_path)
    assert ids(said) == ["a", "b"]
    assert (ended.verdict, ended.exit_code, ended.failed_step) == ("crashed", 5, "b")


@pytest.mark.parametrize(
    ("word", "code"), [("failed", 1), ("hung", 3), ("unreachable", 6), ("wrong_check", 7), ("refused", 8), ("undecided", 9)]
)
def test_each_verdict_has_its_exit_code(tmp_path, word, code):
    ended, _, _ = play(HEAD + f"steps:\n- {{id: b, say: {word}}}\n", tmp_path)
    assert (ended.verdict, ended.exit_code) == (word, code)


def test_always_runs_after_a_failure_each_step_even_if_another_fails(tmp_path):
    text = HEAD + "steps:\n- {id: a, say: failed}\nalways:\n- {id: x, say: failed}\n- {id: y, say: passed}\n"
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a", "x", "y"]
    assert (ended.verdict, ended.failed_step, ended.cleanup) == ("failed", "a", "failed")


def test_a_failing_cleanup_decides_only_when_the_main_part_passed(tmp_path):
    ended, _, _ = play(HEAD + "steps:\n- {id: a, say: passed}\nalways:\n- {id: x, say: crashed}\n", tmp_path)
    assert (ended.verdict, ended.cleanup) == ("crashed", "failed")
    ended, _, _ = play(HEAD + "steps:\n- {id: a, say: hung}\nalways:\n- {id: x, say: crashed}\n", tmp_path / "2")
    assert (ended.verdict, ended.cleanup) == ("hung", "failed")


def test_rescue_takes_a_failed_or_unknown_block_and_says_so(tmp_path):
    text = (
        HEAD
        + "steps:\n- block: [{id: a, say: undecided}, {id: b, say: passed}]\n  rescue: [{id: r, say: passed}]\n- {id: c, say: passed}\n"
    )
    ended, events, said = play(text, tmp_path)
    assert ids(said) == ["a", "r", "c"] and ended.verdict == "passed"
    assert any(getattr(event, "finding", None) and event.finding.code == "rescued" for event in events)


@pytest.mark.parametrize("word", ["refused", "error"])
def test_rescue_never_takes_what_a_safety_rule_or_a_bug_ended(tmp_path, word):
    text = HEAD + f"steps:\n- block: [{{id: a, say: {word}}}]\n  rescue: [{{id: r, say: passed}}]\n"
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a"] and ended.verdict == word


def test_a_blocks_always_runs_after_its_rescue(tmp_path):
    text = (
        HEAD
        + "steps:\n- block: [{id: a, say: failed}]\n  rescue: [{id: r, say: failed}]\n  always: [{id: z, say: passed}]\n- {id: c, say: passed}\n"
    )
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a", "r", "z"] and ended.failed_step == "r"


def test_ignore_errors_covers_failed_and_a_list_names_more(tmp_path):
    text = (
        HEAD
        + "steps:\n- {id: a, say: failed, ignore_errors: true}\n- {id: b, say: crashed, ignore_errors: [crashed]}\n- {id: c, say: passed}\n"
    )
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a", "b", "c"] and ended.verdict == "passed"
    ended, _, said = play(HEAD + "steps:\n- {id: a, say: hung, ignore_errors: true}\n- {id: c, say: passed}\n", tmp_path / "2")
    assert ids(said) == ["a"] and ended.verdict == "hung"


def test_when_false_skips_and_what_it_would_have_given_is_unknown(tmp_path):
    text = HEAD + "steps:\n- {id: a, say: passed, when: 'false'}\n- id: b\n  assert: steps.a.value == 1\n"
    ended, events, said = play(text, tmp_path)
    assert said == [] and ended.verdict == "undecided"
    assert ends(events)["a"].status == "skipped" and ends(events)["a"].verdict is None


def test_when_unknown_stops_the_run_as_undecided_and_is_never_a_skip(tmp_path):
    text = (
        HEAD
        + "steps:\n- {id: a, say: undecided, ignore_errors: [undecided]}\n- {id: b, say: passed, when: steps.a.value == 1}\n- {id: c, say: passed}\n"
    )
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a"] and ended.verdict == "undecided" and "cannot be decided" in ended.reason


def test_retry_tries_until_it_passes_and_keeps_all_attempts(tmp_path):
    text = HEAD + "steps:\n- {id: a, say: {fails_first: 2}, retry: {for: 10s, every: 10ms}}\n- assert: len(steps.a.attempts) == 3\n"
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a", "a", "a"] and ended.verdict == "passed"


def test_retry_does_not_repeat_what_is_certain(tmp_path):
    ended, _, said = play(HEAD + "steps:\n- {id: a, say: crashed, retry: {for: 1s, every: 10ms}}\n", tmp_path)
    assert len(said) == 1 and ended.verdict == "crashed"


def test_retry_until_asks_its_expression_too(tmp_path):
    text = HEAD + "vars: {n: 1}\nsteps:\n- {id: a, say: {value: 1}, retry: {for: 60s, every: 10ms, until: len(steps.a.attempts) == 2}}\n"
    _, _, said = play(text, tmp_path)
    assert len(said) == 2


def test_a_loop_gives_item_and_index_and_ends_at_the_first_failure(tmp_path):
    text = HEAD + "steps:\n- {id: a, loop: [passed, failed, passed], say: {verdict: '${{ item }}', value: '${{ index }}'}}\n"
    ended, events, said = play(text, tmp_path)
    assert len(said) == 2 and ended.verdict == "failed"
    assert [event.result["value"] for event in events if isinstance(event, StepEnded)] == [0, 1]


def test_several_targets_run_and_the_worst_verdict_counts(tmp_path):
    text = "runbook: 1\nhosts: {a: [h1, h2]}\nsteps:\n- {id: s, say: passed}\n- id: t\n  assert: steps.s.hosts['h1'].status == 'passed'\n"
    ended, _, said = play(text, tmp_path)
    assert sorted(said) == [("s", "h1"), ("s", "h2")] and ended.verdict == "passed"
    ended, _events, said = play(text, tmp_path / "2", unreachable=("h2",))
    assert ended.verdict == "unreachable" and ("s", "h1") in said
    assert "h2 does not answer" in ended.reason and "look at the network" in ended.reason


TWICE = "runbook: 1\nhosts: {a: h1}\nsteps:\n- {id: s, say: passed}\nalways:\n- {id: t, say: passed}\n"


@pytest.mark.parametrize("check", [False, True])
def test_a_host_that_was_never_reached_ends_the_run_at_the_step_and_has_nothing_to_clean_up(tmp_path, check):
    ended, _, _ = play(TWICE, tmp_path, unreachable=("h1",), check=check)
    assert (ended.verdict, ended.exit_code, ended.failed_step, ended.cleanup) == ("unreachable", 6, "s", "none")
    assert ended.reason.startswith("step `s` (say): ") and "h1 does not answer" in ended.reason


def test_always_on_a_host_that_is_not_reached_counts_where_the_steps_passed(tmp_path):
    text = "runbook: 1\nhosts: {a: h1, b: h2}\nsteps:\n- {id: s, say: passed, host: b}\nalways:\n- {id: t, say: passed, host: a}\n"
    ended, _, _ = play(text, tmp_path, unreachable=("h1",))
    assert (ended.verdict, ended.cleanup) == ("unreachable", "failed")


def test_a_failing_step_of_always_counts_beside_a_host_that_was_never_reached(tmp_path):
    text = "runbook: 1\nhosts: {a: h1, b: h2}\nsteps:\n- {id: s, say: passed, host: a}\nalways:\n- {id: t, say: %s, host: all}\n"
    for word, cleanup in (("failed", "failed"), ("passed", "passed")):
        ended, _, _ = play(text % word, tmp_path / word, unreachable=("h1",))
        assert (ended.failed_step, ended.cleanup) == ("s", cleanup)


def test_check_mode_looks_at_all_steps_and_ends_as_the_first_bad_look(tmp_path):
    text = HEAD + "steps:\n- {id: u, say: undecided}\n- {id: a, say: failed}\n- {id: b, say: passed}\nalways:\n- {id: c, say: undecided}\n"
    ended, _, said = play(text, tmp_path, check=True)
    assert ids(said) == ["u", "a", "b", "c"] and (ended.verdict, ended.failed_step, ended.cleanup) == ("failed", "a", "passed")
    ended, _, _ = play(text.replace("failed", "passed"), tmp_path / "2", check=True)
    assert (ended.verdict, ended.cleanup) == ("passed", "passed")


def test_a_field_of_a_step_on_several_targets_needs_a_name(tmp_path):
    text = "runbook: 1\nhosts: {a: [h1, h2]}\nsteps:\n- {id: s, say: {value: 1}, host: a}\n- assert: steps.s.hosts['h2'].value == 1\n"
    ended, _, _ = play(text, tmp_path)
    assert ended.verdict == "passed"


def test_the_effective_box_is_the_smallest_rest_and_says_what_limited_it(tmp_path):
    text = HEAD + "timeout: 300ms\nsteps:\n- {id: a, say: {waits: 20}, timeout: 10s}\n"
    ended, events, _ = play(text, tmp_path)
    assert ends(events)["a"].result["limited_by"] == "playbook" and ended.seconds < 5


def test_set_is_for_the_rest_of_the_run_and_overrides_win(tmp_path):
    text = HEAD + "vars: {n: 1, m: '${{ vars.n + 1 }}'}\nsteps:\n- set: {n: 5}\n- assert: [vars.n == 5, vars.m == 6]\n"
    assert play(text, tmp_path)[0].verdict == "passed"
    text = HEAD + "vars: {n: 1}\nsteps:\n- set: {n: 5}\n- assert: vars.n == 7\n"
    assert play(text, tmp_path / "2", overrides={"n": 7})[0].verdict == "passed"


def test_a_bug_in_a_step_is_an_error_with_a_report_and_cleanup_still_runs(tmp_path):
    ended, _, said = play(HEAD + "steps:\n- {id: a, say: {bug: true}}\nalways:\n- {id: z, say: passed}\n", tmp_path)
    assert ended.verdict == "error" and ended.exit_code == 70 and ids(said) == ["a", "z"]
    assert "ZeroDivisionError" in (tmp_path / "evidence/a/traceback.txt").read_text()


def test_a_missing_key_fails_and_names_the_keys_that_are_there(tmp_path):
    text = HEAD + "steps:\n- {id: a, say: {value: {error: no, code: 5}}}\n- assert: steps.a.value.choices == 1\n"
    ended, _, _ = play(text, tmp_path)
    assert ended.verdict == "failed" and "error" in ended.reason and "code" in ended.reason


def test_run_verdict_is_known_in_always(tmp_path):
    text = (
        HEAD + "steps:\n- {id: a, say: failed}\nalways:\n- {id: z, say: passed, when: run.verdict == 'failed' and run.failed_step == 'a'}\n"
    )
    assert ids(play(text, tmp_path)[2]) == ["a", "z"]


def test_an_item_that_was_tried_again_is_one_item(tmp_path):
    text = (
        HEAD + "steps:\n- {id: a, loop: [x, y], say: {fails_first: 1, value: '${{ item }}'}, retry: {for: 10s, every: 10ms}}\n"
        "- assert: \"[i.value for i in steps.a.items] == ['x', 'y']\"\n"
    )
    ended, _, said = play(text, tmp_path)
    assert ids(said) == ["a", "a", "a"] and ended.verdict == "passed", ended.reason
