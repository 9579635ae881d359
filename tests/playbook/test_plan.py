"""The plan of a playbook: what is known is filled in, what only a run can know stays as it was written."""

from __future__ import annotations

from runbook.playbook.plan import Planner
from tests.playbook.loading import HEAD, valid
from tests.playbook.table import TABLE


def plan(steps: str, head: str = HEAD, overrides=None) -> list[str]:
    return Planner(valid(steps, head=head), TABLE, overrides or {}).lines()


def test_a_plan_names_steps_hosts_boxes_and_acts():
    lines = plan(
        "  - {id: up, name: Start it, timeout: 5m, launch: {command: [a], settle: 2s}}\n  - {run: 'true', when: 1 < 2, loop: [1, 2]}\n"
    )
    assert lines == [
        "book",
        "  box: local",
        "up (launch on local, at most 5m) - Start it",
        "    start ['a'] for 2s",
        "s02_run (run on local, at most 10m)",
        "    only when 1 < 2",
        "    once for each of 2 items",
        "    run true",
    ]


def test_variables_are_filled_in_and_quoted_for_the_shell():
    head = f"{HEAD}vars: {{what: it's, port: 1}}\n"
    lines = plan("  - run: echo ${{ vars.what }} ${{ vars.port }}\n", head=head, overrides={"port": 2})
    assert lines[-1] == "    run echo 'it'\"'\"'s' 2"


def test_a_list_for_a_command_stays_a_list():
    lines = plan("  - launch: {command: '${{ vars.words }}'}\n", head=f"{HEAD}vars: {{words: [a, b c]}}\n")
    assert "start ['a', 'b c']" in lines[-1]


def test_what_only_a_run_can_know_is_shown_as_written():
    lines = plan(
        "  - {id: up, launch: {command: [a]}}\n  - launch: {command: [b], port: '${{ steps.up.pid }}'}\n  - run: kill ${{ steps.up.pid }}\n"
    )
    assert '    command: ["b"]' in lines and "    port: ${{ steps.up.pid }}" in lines
    assert lines[-1] == "    run kill ${{ steps.up.pid }}"


def test_blocks_rescue_and_always_are_told_apart():
    lines = plan("  - block: [{run: a}]\n    rescue: [{run: b}]\n    always: [{run: c}]\n")
    assert [line for line in lines if line.endswith(":")] == [" rescue, if it fails:", " always:"]
    assert [line.split()[0] for line in lines if "(run" in line] == ["s01_run", "s02_run", "s03_run"]


def test_targets_whose_plans_differ_are_told_apart():
    head = "runbook: 1\nhosts: {box: [a, {target: b, via: sudo -n}]}\n"
    lines = plan("  - run: echo ${{ host.name }}\n  - run: 'true'\n", head=head)
    assert lines[2:] == [
        "s01_run (run on a, b via `sudo -n`, at most 10m)",
        "  a:",
        "    run echo a",
        "  b:",
        "    run echo b",
        "s02_run (run on a, b via `sudo -n`, at most 10m)",
        "    run true",
    ]
