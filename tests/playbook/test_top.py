"""Roles, targets, secrets."""

from __future__ import annotations

import pytest

from tests.playbook.loading import load, place, the_problem, valid

RUN = "  - run: x\n"


@pytest.mark.parametrize(
    "target", ["local", "lab", "big-box", "gpu_1.example.com", "root@10.0.0.1", "me@box:2222", "box:22", "u@[::1]:22", "[fe80::1%eth0]"]
)
def test_what_may_name_a_host_is_let_through(target):
    assert valid(RUN, head=f'runbook: 1\nhosts: {{box: "{target}"}}\n').hosts["box"][0].target == target


@pytest.mark.parametrize("target", ["a b", "-oProxyCommand=x", "a;b", "box:99999", "box:0", "@box", "", "a\\nb", "${{ vars.x }}"])
def test_what_cannot_name_a_host_is_refused(target):
    found = the_problem(RUN, head=f'runbook: 1\nhosts: {{box: "{target}"}}\n')
    assert (found.code, place(found)) == ("bad-target", (2, 14))


def test_a_target_with_settings_is_checked_key_by_key():
    found = the_problem(RUN, head="runbook: 1\nhosts: {box: {target: local, vai: sudo}}\n")
    assert (found.code, found.hint) == ("unknown-key", "did you mean `via`?")
    found = the_problem(RUN, head="runbook: 1\nhosts: {box: {target: a b}}\n")
    assert (found.code, place(found)) == ("bad-target", (2, 23))


@pytest.mark.parametrize("role", ["all", "a b", "1st"])
def test_a_role_needs_a_name_that_can_be_said(role):
    assert "bad-role" in [one.code for one in load(f"runbook: 1\nhosts: {{{role}: local}}\nsteps: [{{assert: 1 < 2}}]\n")[1]]


def test_the_command_line_replaces_targets_and_what_led_to_them():
    head = "runbook: 1\nhosts: {box: {target: local, via: sudo -n, vars: {a: 1}}}\n"
    (target,) = valid("  - run: echo ${{ vars.a }}\n", head=head, roles={"box": ["other"]}).hosts["box"]
    assert (target.target, target.via, target.vars) == ("other", "", {"a": 1})


def test_a_role_of_the_command_line_must_exist():
    found = the_problem(RUN, roles={"bix": ["other"]})
    assert (found.code, found.hint) == ("unknown-role", "did you mean `box`?")


def test_nearly_the_name_of_an_inventory_entry_is_a_warning():
    playbook, found = load("runbook: 1\nhosts: {box: gpu-bxo}\nsteps: [{run: x}]\n", hosts={"gpu-box"})
    assert playbook is not None and [(one.code, one.hint) for one in found] == [("unknown-host", "did you mean `gpu-box`?")]
    assert not load("runbook: 1\nhosts: {box: gpu-box}\nsteps: [{run: x}]\n", hosts={"gpu-box"})[1]


@pytest.mark.parametrize(("secret", "code"), [("A-B", "bad-name"), ("{name: A, required: maybe}", "type"), ("{nam: A}", "unknown-key")])
def test_a_malformed_secret_is_found(secret, code):
    assert code in [one.code for one in load(f"runbook: 1\nsecrets: [{secret}]\nsteps: [{{assert: 1 < 2}}]\n")[1]]


def test_variables_of_an_inventory_are_known():
    valid("  - run: echo ${{ vars.rack }}\n", host_vars=["rack"])


def test_time_boxes_at_the_top_carry_units():
    found = the_problem(RUN, head="runbook: 1\nhosts: {box: local}\ntimeout: 5\n")
    assert (found.code, place(found)) == ("unit", (3, 10))
    assert the_problem(RUN, head="runbook: 1\nhosts: {box: local}\ntimeout: ${{ vars.x }}\n").code == "type"
