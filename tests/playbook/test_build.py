"""A playbook from its text: what stands in it afterwards, and that all mistakes are found at once."""

from __future__ import annotations

import pytest

from runbook.model.playbook import BlockNode, StepNode, Target
from runbook.model.units import Duration
from tests.playbook.loading import HEAD, load, place, problems, the_problem, valid

WHOLE = """\
runbook: 1
name: Whole
description: Everything a playbook may say.
hosts:
  gpu: [big-box, {target: root@10.0.0.1:2222, via: sudo -n, gpus: [0, 1]}]
  box: local
vars: {port: 8000, command: [server, --port, '${{ vars.port }}']}
secrets: [TOKEN, {name: KEY, required: true}]
timeout: 1h
suspend_for: 30m
steps:
  - id: server
    name: Start it
    host: box
    timeout: 5m
    launch: {command: '${{ vars.command }}', env: {TOKEN: '${{ secrets.TOKEN }}'}}
  - block:
      - run: {shell: "true", timeout: 3s}
        when: steps.server.pid > 1
    rescue:
      - stop: {step: server}
    always:
      - assert: [steps.server.status == 'passed']
    host: box
always:
  - stop: {step: server}
    host: all
"""


def test_a_whole_playbook_arrives_as_data():
    playbook, found = load(WHOLE)
    assert not found and playbook is not None
    assert playbook.name == "Whole" and playbook.timeout == Duration(3600) and playbook.suspend_for == Duration(1800)
    assert playbook.hosts["gpu"] == (Target(target="big-box"), Target(target="root@10.0.0.1:2222", via="sudo -n", gpus=[0, 1]))
    assert [secret.required for secret in playbook.secrets] == [False, True]
    assert playbook.text == WHOLE
    server, block = playbook.steps
    assert isinstance(server, StepNode) and isinstance(block, BlockNode)
    assert (server.id, server.named, server.type, server.common.timeout) == ("server", True, "launch", "5m")
    assert server.body["command"] == "${{ vars.command }}"
    assert server.spans["env.TOKEN"].line == 16 and server.spans["~timeout"].line == 15


def test_ids_of_unnamed_steps_count_all_steps_in_file_order():
    playbook = load(WHOLE)[0]
    assert playbook is not None
    block = playbook.steps[1]
    assert isinstance(block, BlockNode)
    assert [node.id for node in (*block.steps, *block.rescue, *block.always, *playbook.always)] == [
        "s02_run",
        "s03_stop",
        "s04_assert",
        "s05_stop",
    ]


def test_a_block_gives_its_host_to_its_steps():
    playbook = load(WHOLE)[0]
    assert playbook is not None
    block = playbook.steps[1]
    assert isinstance(block, BlockNode) and isinstance(block.rescue[0], StepNode)
    assert block.rescue[0].common.host == "box"


def test_a_timeout_inside_the_mapping_is_the_steps_timeout():
    playbook = load(WHOLE)[0]
    assert playbook is not None
    block = playbook.steps[1]
    assert isinstance(block, BlockNode) and isinstance(block.steps[0], StepNode)
    assert block.steps[0].common.timeout == "3s" and "timeout" not in block.steps[0].body


def test_a_name_is_taken_from_the_file_when_there_is_none():
    assert valid("  - run: 'true'\n").name == "book"


def test_all_problems_come_at_once_in_file_order():
    found = problems("  - rum: x\n  - run: ${{ vars.nope }}\n  - launch: {command: [a], settle: 3}\n  - stop: {match: {cmdline: '('}}\n")
    assert [one.code for one in found] == ["unknown-step", "undefined-var", "unit", "regex"]
    assert [place(one) for one in found] == [(4, 5), (5, 14), (6, 36), (7, 29)]


@pytest.mark.parametrize("key", ["tags", "roles"])
def test_a_key_that_does_not_belong_at_the_top_is_simply_unknown(key):
    found = the_problem("  - run: 'true'\n", head=f"{HEAD}{key}: {{}}\n")
    assert found.code == "unknown-key" and place(found) == (3, 1)


def test_a_list_of_plays_is_told_what_is_missing():
    playbook, found = load("- hosts: all\n")
    assert playbook is None and "steps:" in (found[0].hint or "")


def test_an_unsupported_format_version_is_refused():
    assert the_problem("  - run: 'true'\n", head="runbook: 2\nhosts: {box: local}\n").summary == "`runbook` must be `1`, not the number `2`"


def test_a_playbook_without_steps_says_so():
    assert [one.code for one in load("runbook: 1\n")[1]] == ["missing-key"]
    assert [one.code for one in load("runbook: 1\nsteps: []\n")[1]] == ["empty"]


def test_a_warning_alone_does_not_refuse_a_playbook():
    playbook, found = load("runbook: 1\nhosts: {box: loacl}\nsteps: [{run: 'true'}]\n")
    assert playbook is not None
    assert [(one.severity.value, one.hint) for one in found] == [("warning", "did you mean `local`?")]


def test_vars_files_are_read_beside_the_playbook_and_win_over_its_vars():
    asked = []

    def read(file: str) -> bytes:
        asked.append(file)
        return b"a: 2\nb: 3\n"

    text = f"{HEAD}vars: {{a: 1}}\nvars_files: [more.yaml]\nsteps:\n  - run: {{argv: ['${{{{ vars.a }}}}', '${{{{ vars.b }}}}']}}\n"
    playbook, found = load(text, read=read)
    assert playbook is not None and not found
    assert playbook.vars == {"a": 2, "b": 3} and asked == ["more.yaml"]


def test_a_mistake_in_a_vars_file_is_placed_in_that_file():
    found = problems("  - run: 'true'\n", head=f"{HEAD}vars_files: [more.yaml]\n", read=lambda file: b"a: ${{ vars.nope }}\n")
    assert [(str(one.span), one.code) for one in found] == [("more.yaml:1:8", "undefined-var")]


def test_a_vars_file_that_is_not_there_is_an_error_at_its_name():
    def read(file: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", file)

    found = the_problem("  - run: 'true'\n", head=f"{HEAD}vars_files: [more.yaml]\n", read=read)
    assert found.code == "unreadable" and place(found) == (3, 14)
