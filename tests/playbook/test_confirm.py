"""What has to be confirmed: what others notice, on marked hosts, and nothing else."""

from __future__ import annotations

import pytest

from runbook.playbook.build import load_playbook
from runbook.playbook.confirm import disturbances
from runbook.steps import TABLE

BOOK = """\
runbook: 1
hosts: {prod: {target: a, production: true}, team: {target: b, shared: true}, mine: c}
steps:
  - {id: look, host: all, run: nvidia-smi}
  - {id: up, host: team, launch: {command: [sleep, '1'], profile: generic}}
  - {id: own, host: team, kill: {step: up}}
  - {id: foreign, host: [prod, mine], kill: {match: {user: '${{ vars.who }}'}}}
  - block:
      - {id: probe, host: all, patch: {file: /x.py, replace: [{find: a, with: b}]}}
    id: group
  - {id: root, host: prod, run: {shell: 'true', sudo: true}}
  - {id: file, host: prod, copy: {from: a, to: /b}}
vars: {who: me}
"""


def book(text=BOOK):
    playbook, found = load_playbook(text.encode(), "t.yaml", table=TABLE, profiles=["generic"])
    assert playbook is not None, found
    return playbook


def test_only_what_others_notice_on_marked_hosts():
    found = [(one.step, one.host, one.marked) for one in disturbances(book(), TABLE)]
    both = [("probe", "a", "production"), ("probe", "b", "shared")]
    expected = [("up", "b", "shared"), ("foreign", "a", "production"), *both, ("root", "a", "production"), ("file", "a", "production")]
    assert found == expected


def test_what_a_run_leaves_out_is_not_asked_for():
    assert [one.step for one in disturbances(book(), TABLE, {"group", "root", "file", "up"})] == ["foreign"]


def test_a_rule_of_what_to_leave_alone_is_checked_with_its_place():
    wrong = BOOK.replace("mine: c", "mine: {target: c, protect: [{user: x}, {title: '('}, {why: nothing}]}")
    _, found = load_playbook(wrong.encode(), "t.yaml", table=TABLE, profiles=["generic"])
    assert [one.code for one in found] == ["bad-rule", "bad-rule"] and all(one.span.line == 2 for one in found)


@pytest.mark.parametrize("marks", ["production: true", "shared: true"])
def test_a_host_that_is_not_marked_needs_nothing(marks):
    assert disturbances(book(BOOK.replace(f", {marks}", "")), TABLE) != disturbances(book(), TABLE)
