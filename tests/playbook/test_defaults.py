"""`defaults:` of a file, tags, inputs at the top of a run."""

from __future__ import annotations

from typing import Any

import pytest

from runbook.model.playbook import StepNode
from runbook.playbook.overrides import Typed
from runbook.playbook.plan import Planner
from tests.playbook.loading import HEAD, load, place, problems, the_problem, valid
from tests.playbook.table import TABLE

LAUNCH = "  - launch: {command: [a]}\n"


def step(steps: str, head: str) -> StepNode:
    node = valid(steps, head=f"{HEAD}{head}").steps[0]
    assert isinstance(node, StepNode)
    return node


def test_a_step_gets_what_it_leaves_out_and_keeps_what_it_says():
    head = "defaults:\n  launch: {profile: sglang, settle: 9s, timeout: 7m}\n"
    node = step("  - launch: {command: [a], settle: 2s}\n", head)
    assert node.body == {"command": ["a"], "settle": "2s", "profile": "sglang"} and node.common.timeout == "7m"
    assert node.defaulted == ("profile", "timeout") and node.spans["profile"].line == 4
    assert step("  - launch: {command: [a]}\n    timeout: 1m\n", head).common.timeout == "1m"
    assert step("  - run: echo\n", "defaults: {run: {env: {A: b}}}\n").body == {"shell": "echo", "env": {"A": "b"}}


def test_a_required_key_may_be_a_default_and_its_expressions_are_those_of_the_step():
    head = "vars: {c: [x]}\ndefaults:\n  launch: {command: '${{ vars.c }}'}\n"
    assert step("  - launch:\n", head).body == {"command": "${{ vars.c }}"}
    found = problems("  - launch:\n", head=f"{HEAD}{head.replace('vars.c ', 'vars.d ')}")
    assert [(one.code, place(one)) for one in found] == [("undefined-var", (5, 26))]


@pytest.mark.parametrize(
    ("defaults", "code", "column", "hint"),
    [
        ("{lunch: {}}", "unknown-step", 12, "did you mean `launch`?"),
        ("{launch: {setle: 1s}}", "unknown-key", 21, "did you mean `settle`?"),
        ("{launch: {when: 'true'}}", "unknown-key", 21, None),
        ("{launch: {settle: 3}}", "unit", 29, "write `3s` for seconds or `3m` for minutes"),
        ("{stop: {tree: 3}}", "type", 25, None),
        ("{set: {a: 1}}", "no-default", 12, "leave it out"),
        ("{include: {playbook: x}}", "no-default", 12, "leave it out"),
        ("{launch: 5}", "type", 20, None),
    ],
)
def test_a_wrong_default_is_found_once_at_its_place_used_or_not(defaults, code, column, hint):
    found = the_problem(LAUNCH + LAUNCH, head=f"{HEAD}defaults: {defaults}\n")
    assert (found.code, place(found)) == (code, (3, column))
    assert hint is None or found.hint == hint


def test_the_plan_says_what_a_default_gave():
    book = valid(LAUNCH, head=f"{HEAD}defaults: {{launch: {{settle: 9s}}}}\n")
    assert "by defaults: settle: 9s" in "\n".join(Planner(book, TABLE, {}).lines())


def test_tags_are_a_word_or_a_list():
    assert step("  - {run: 'true', tags: a}\n", "").common.tags == ("a",)
    assert step("  - {run: 'true', tags: [a, b-1]}\n", "").common.tags == ("a", "b-1")
    assert the_problem("  - {run: 'true', tags: 'a,b'}\n").code == "bad-tag"
    assert the_problem("  - {run: 'true', tags: {a: 1}}\n").code == "type"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "5", 5),
        ("number", "0.5", 0.5),
        ("boolean", "true", True),
        ("text", "5", "5"),
        ("list", "[a, 1]", ["a", 1]),
        ("mapping", "{a: 1}", {"a": 1}),
        ("duration", "5m", "5m"),
        ("any", "[1]", [1]),
    ],
)
def test_an_input_gets_its_type_from_the_command_line(kind, text, value):
    playbook, found = load(f"{HEAD}inputs: {{x: {{type: {kind}}}}}\nsteps: [{{run: 'true'}}]\n", overrides={"x": Typed(text)})
    assert playbook is not None and not found
    from runbook.playbook.overrides import apply_overrides

    assert apply_overrides({"x": None}, {"x": Typed(text)}, playbook.inputs) == ({"x": value}, [])


@pytest.mark.parametrize(
    ("declared", "given", "code"),
    [
        ("{type: integer}", Typed("five"), "type"),
        ("{type: duration}", Typed("5"), "type"),
        ("{choices: [a, b]}", Typed("c"), "type"),
        ("{type: list}", {"a": 1}, "type"),
    ],
)
def test_what_does_not_fit_an_input_is_refused(declared, given: Any, code):
    found = load(f"{HEAD}inputs: {{x: {declared}}}\nsteps: [{{run: 'true'}}]\n", overrides={"x": given})[1]
    assert [one.code for one in found] == [code]


@pytest.mark.parametrize(
    ("declared", "code", "column"),
    [
        ("{type: integer, default: x}", "type", 38),
        ("{choices: [a, b], default: c}", "choice", 40),
        ("{type: integer, choices: [1, b]}", "type", 42),
        ("{type: step, default: a}", "type", 35),
        ("{typ: text}", "unknown-key", 14),
    ],
)
def test_a_wrong_declaration_is_found_at_its_place(declared, code, column):
    found = the_problem("  - run: 'true'\n", head=f"{HEAD}inputs: {{x: {declared}}}\n")
    assert (found.code, place(found)) == (code, (3, column))


def test_an_input_and_a_variable_cannot_share_a_name():
    found = the_problem("  - run: 'true'\n", head=f"{HEAD}inputs: {{x: {{default: 1}}}}\nvars: {{x: 2}}\n")
    assert (found.code, place(found)) == ("duplicate-var", (4, 8))


def test_outputs_are_checked_where_they_stand():
    head = f"{HEAD}outputs:\n  a: '${{{{ steps.s.exit }}}}'\n  b: {{value: '${{{{ steps.s.nope }}}}', help: none}}\n  c: ${{{{ vars.nope }}}}\n"
    found = problems("  - {id: s, run: 'true'}\n", head=head)
    assert [(one.code, place(one)) for one in found] == [("unknown-result", (5, 19)), ("undefined-var", (6, 10))]
