"""One step, one type; the keys beside it; ids."""

from __future__ import annotations

import pytest

from tests.playbook.loading import HEAD, place, problems, the_problem, valid


@pytest.mark.parametrize(
    ("step", "code", "column", "hint"),
    [
        ("stopp: {step: a}", "unknown-step", 5, "did you mean `stop`?"),
        ("name: x", "no-step", 5, "add one of: assert, include, launch, patch, run, set, stop"),
        ("{run: x, stop: {match: {port: 1}}}", "two-steps", 14, "start a new item: `- stop:`"),
        ("{run: x, nmae: y}", "unknown-key", 14, "did you mean `name`?"),
        ("{run: x, argv: [y]}", "misplaced-key", 14, "indent it under the step type"),
        ("run: {shell: x, when: 'true'}", "misplaced-key", 21, "put it one level up, beside `run`"),
        ("{run: {shell: x, timeout: 5s}, timeout: 6s}", "duplicate-timeout", 22, "keep one"),
        ("{run: x, rescue: []}", "misplaced-key", 14, "put the steps under `block:`"),
        ("run", "type", 5, "write `- run:` and its keys"),
        ("launch: server", "type", 13, "its keys: command, env, profile, port, at_end, settle"),
        ("stop:", "step", 5, "write for example `step: server`"),
        ("{block: [{run: x}], loop: [1]}", "misplaced-key", 25, "put it on the steps of the block"),
        ("{block: [{run: x}], retry: {for: 5s}}", "misplaced-key", 25, "put it on the step that may fail"),
        ("block: []", "empty", 12, None),
        ("{run: x, timeout: 10}", "unit", 23, "write `10s` for seconds or `10m` for minutes"),
        ("{run: x, ignore_errors: [hugn]}", "choice", 30, "did you mean `hung`?"),
        ("{run: x, ignore_errors: yes}", "type", 29, "write `true`"),
        ("{run: x, retry: {every: 1s}}", "missing-key", 14, "add `for:` with a duration"),
        ("{run: x, loop: 3}", "type", 20, "write a list: `[3]`"),
        ("{run: x, vars: {a-b: 1}}", "bad-name", 21, "use letters, digits and `_`, a letter first"),
    ],
)
def test_a_malformed_step_is_placed_and_explained(step, code, column, hint):
    found = the_problem(f"  - {step}\n")
    assert (found.code, place(found), found.hint) == (code, (4, column), hint)


@pytest.mark.parametrize(
    ("id", "hint"),
    [("Up-1", "write `up_1`"), ("1st", "write a letter, then letters, digits and `_`"), ("s07_run", "choose a word, as in `server`")],
)
def test_an_id_that_an_expression_could_not_say_is_refused(id, hint):
    found = the_problem(f"  - id: {id}\n    run: x\n")
    assert (found.code, found.hint) == ("bad-id", hint)


def test_a_second_step_of_the_same_id_names_the_line_of_the_first():
    found = the_problem("  - {id: a, run: x}\n  - {id: a, run: y}\n")
    assert found.code == "duplicate-id" and "line 4" in found.summary and place(found) == (5, 10)


def test_a_step_of_unknown_type_does_not_make_references_to_it_wrong():
    """One mistake, one message: the id is there, only its type is misspelt."""
    found = problems("  - {id: up, lunch: {command: [a]}}\n  - assert: steps.up.pid > 1\n  - stop: {step: up}\n")
    assert [one.code for one in found] == ["unknown-step"]


def test_a_shorthand_stands_for_its_field():
    playbook = valid("  - run: echo hi\n  - assert: 1 < 2\n  - set: {a: 1, timeout: 5}\n")
    assert [step.body for step in playbook.steps] == [{"shell": "echo hi"}, {"that": "1 < 2"}, {"values": {"a": 1, "timeout": 5}}]


def test_a_place_inside_a_shorthand_is_that_of_the_value():
    found = the_problem("  - assert:\n      - 1 < 2\n      - {that: vars.nope, because: x}\n")
    assert place(found) == (6, 16)


def test_with_several_roles_a_step_must_say_where():
    two = "runbook: 1\nhosts: {box: local, gpu: lab}\n"
    found = the_problem("  - run: x\n", head=two)
    assert (found.code, found.hint) == ("no-host", "add `host: box`, or `host: all`")
    valid("  - {run: x, host: all}\n  - {run: x, host: [box, gpu]}\n  - assert: 1 < 2\n", head=two)


def test_without_roles_a_step_has_nowhere_to_run():
    assert the_problem("  - run: x\n", head="runbook: 1\n").code == "no-host"
    valid("  - assert: 1 < 2\n", head="runbook: 1\n")


def test_an_unknown_role_is_suggested():
    found = the_problem("  - {run: x, host: bocks}\n", head=HEAD.replace("box", "boxes"))
    assert (found.code, found.hint) == ("unknown-role", "did you mean `boxes`?")
