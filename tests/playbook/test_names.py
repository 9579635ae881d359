"""What a name in an expression means at its place."""

from __future__ import annotations

import pytest

from tests.playbook.loading import HEAD, place, problems, the_problem, valid

VARS = f"{HEAD}vars: {{port: 1, path: /x, other: '${{{{ steps.up.pid }}}}', each: '${{{{ item }}}}'}}\nsecrets: [TOKEN]\n"
UP = "  - {id: up, launch: {command: [a]}}\n"


@pytest.mark.parametrize(
    ("expression", "code", "hint"),
    [
        ("vars.prot == 1", "undefined-var", "did you mean `vars.port`?"),
        ("port == 1", "undefined-name", "did you mean `vars.port`?"),
        ("up.pid == 1", "undefined-name", "did you mean `steps.up`?"),
        ("step.up.pid == 1", "undefined-name", "did you mean `steps`?"),
        ("steps.upp.pid == 1", "unknown-step-id", "did you mean `steps.up`?"),
        ("steps.up.pdi == 1", "unknown-result", "did you mean `pid`?"),
        ("steps.up.hosts['local'].pdi == 1", "unknown-result", "did you mean `pid`?"),
        ("steps.up.items[0].pdi == 1", "unknown-result", "did you mean `pid`?"),
        ("steps.later.exit == 1", "later-step", "move this step below it"),
        ("secrets.TOKNE == 'x'", "undeclared-secret", "did you mean `secrets.TOKEN`?"),
        ("hosts.bix[0].name == 'x'", "unknown-role", "did you mean `hosts.box`?"),
        ("hosts.box[3].name == 'x'", "unknown-role", "they count from 0"),
        ("host.nmae == 'x'", "undefined-name", "did you mean `host.name`?"),
        ("run.ids == 'x'", "undefined-name", "did you mean `run.id`?"),
        ("item == 1", "no-loop", "add `loop: [...]` beside the step type"),
        ("vars.each == 1", "no-loop", None),
    ],
)
def test_a_name_that_means_nothing_here_is_found(expression, code, hint):
    found = the_problem(f'{UP}  - assert: "{expression}"\n  - {{id: later, run: x}}\n', head=VARS)
    assert (found.code, found.hint) == (code, hint)
    assert place(found)[0] == 7


@pytest.mark.parametrize(
    "expression",
    [
        "vars.port == 1",
        "vars.other > 1",
        "steps.up.status == 'passed'",
        "steps.up.hosts['local'].pid > 1",
        "steps.up.items[0].pid > 1 or steps.up.attempts[0].seconds > 1",
        "hosts.box[0].name == host.name and run.id != ''",
        "any(x.pid > 1 for x in steps.up.items)",
    ],
)
def test_a_name_that_means_something_is_let_through(expression):
    valid(f'{UP}  - assert: "{expression}"\n', head=VARS)


def test_a_variable_that_uses_a_later_step_is_found_where_it_is_used():
    found = the_problem(f'  - run: "echo ${{{{ vars.other }}}}"\n{UP}', head=VARS)
    assert (found.code, place(found)) == ("later-step", (6, 20))
    assert "steps.up" in found.summary and "line 7" in (found.hint or "")


def test_a_loop_gives_item_and_index_to_the_step_but_not_to_its_own_list():
    valid("  - {run: 'echo ${{ item }} ${{ index }}', loop: [1, 2]}\n")
    assert the_problem("  - {run: x, loop: ['${{ item }}']}\n").code == "no-loop"


def test_until_may_read_the_steps_own_result():
    valid("  - {id: a, run: x, retry: {for: 5s, until: steps.a.exit == 0}}\n")
    assert the_problem("  - {id: a, run: x, when: steps.a.exit == 0}\n").code == "later-step"


def test_variables_of_a_step_and_its_block_are_known_inside_alone():
    valid("  - block: [{run: 'echo ${{ vars.a }} ${{ vars.b }}', vars: {b: 2}}]\n    vars: {a: 1}\n")
    found = problems("  - {run: x, vars: {b: 2}}\n  - run: echo ${{ vars.b }}\n")
    assert [(one.code, place(one)[0]) for one in found] == [("undefined-var", 5)]


def test_a_variable_that_set_gives_is_known_only_afterwards():
    valid("  - set: {a: 1}\n  - run: echo ${{ vars.a }}\n")
    assert the_problem("  - run: echo ${{ vars.a }}\n  - set: {a: 1}\n").code == "later-step"


def test_circles_of_variables_are_named_once():
    found = the_problem(
        "  - run: x\n", head=f"{HEAD}vars: {{a: '${{{{ vars.b }}}}', b: '${{{{ vars.c }}}}', c: '${{{{ vars.a }}}}', d: 1}}\n"
    )
    assert (found.code, place(found)) == ("var-cycle", (3, 11))
    assert "vars.a → vars.b → vars.c → vars.a" in found.summary


def test_a_circle_behind_the_variable_that_is_used_is_followed_once():
    head = f"{HEAD}vars: {{a: '${{{{ vars.b }}}}', b: '${{{{ vars.c }}}}', c: '${{{{ vars.b }}}}'}}\n"
    assert the_problem("  - run: echo ${{ vars.a }}\n", head=head).code == "var-cycle"


def test_an_override_can_open_and_close_a_circle():
    circle = f"{HEAD}vars: {{a: '${{{{ vars.b }}}}', b: '${{{{ vars.a }}}}'}}\n"
    valid("  - run: x\n", head=circle, overrides={"b": 1})
    straight = f"{HEAD}vars: {{a: '${{{{ vars.b }}}}', b: 1}}\n"
    assert the_problem("  - run: x\n", head=straight, overrides={"b": "${{ vars.a }}"}).code == "var-cycle"


def test_a_result_of_several_targets_is_not_one_value():
    two = "runbook: 1\nhosts: {box: [local, lab]}\n"
    found = the_problem("  - {id: a, run: x}\n  - assert: steps.a.exit == 0\n", head=two)
    assert (found.code, found.hint) == ("many-targets", "write `steps.a.hosts['TARGET'].exit`")
    assert the_problem("  - {id: a, run: x}\n  - assert: steps.a.items[0].exit == 0\n", head=two).code == "many-targets"
    valid("  - {id: a, run: x}\n  - assert: steps.a.hosts['lab'].exit == 0\n", head=two)
    valid("  - {id: a, run: x, loop: [1]}\n  - assert: steps.a.hosts['lab'].items[0].exit == 0\n", head=two)
    valid("  - {id: a, run: x}\n  - assert: steps.a.exit == 0\n", head=two, roles={"box": ["local"]})
