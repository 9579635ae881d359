"""Texts by their kind: shell text, regular expressions, references to steps, profiles, Python for the server."""

from __future__ import annotations

import pytest

from tests.playbook.loading import HEAD, place, the_problem, valid

HEADS = f"{HEAD}vars: {{text: echo hi, words: [echo, hi], hidden: '${{{{ secrets.TOKEN }}}}', deep: 'x ${{{{ vars.hidden }}}}'}}\nsecrets: [TOKEN]\n"
UP = "  - {id: up, launch: {command: [a]}}\n  - {id: done, run: x}\n"


@pytest.mark.parametrize(
    ("step", "code", "column"),
    [
        ("run: echo '${{ vars.text }}'", "expression-in-quotes", 16),
        ("run: ${{ vars.text }}", "one-word", 10),
        ("run: echo ${{ secrets.TOKEN }}", "secret-in-argv", 19),
        ("run: echo ${{ vars.deep }}", "secret-in-argv", 19),
        ("run: {argv: [a, '${{ secrets.TOKEN }}']}", "secret-in-argv", 26),
        ("launch: {command: [a, '${{ vars.hidden }}']}", "secret-in-argv", 32),
        ("run: echo ${{ vars.text", "expression", 15),
        ("run: echo ${{ vars.text. }}", "expression", 28),
        ("run: echo ${{ __import__('os') }}", "expression", 19),
        ("stop: {match: {cmdline: 'a('}}", "regex", 29),
        ("stop: {step: upp}", "unknown-step-id", 18),
        ("stop: {step: done}", "wrong-step", 18),
        ("stop: {step: later}", "later-step", 18),
        ("launch: {command: [a], profile: sglnag}", "unknown-profile", 37),
        ("patch: {file: /a, show: [x +]}", "python", 30),
        ("patch: {file: /a, since: nope}", "unknown-step-id", 30),
        ("assert: ${{ 1 < 2 }}", "bare-expression", 13),
        ("assert: 1 + 2", "not-boolean", 13),
        ("assert: '\"text\"'", "not-boolean", 13),
        ("assert: len(vars.words)", "not-boolean", 13),
        ("assert: {that: [1]}", "type", 21),
        ("{run: x, when: 3}", "type", 20),
        ("{run: x, when: '${{ 1 < 2 }}'}", "bare-expression", 20),
        ("{run: x, when: vars.words}", None, 0),
    ],
)
def test_a_text_is_checked_by_its_kind(step, code, column):
    steps = f"{UP}  - {step}\n  - {{id: later, launch: {{command: [a]}}}}\n"
    if code is None:  # what a variable gives is not looked at: it may be replaced
        valid(steps, head=HEADS)
        return
    found = the_problem(steps, head=HEADS)
    assert (found.code, place(found)) == (code, (8, column)), found


@pytest.mark.parametrize(
    "step",
    [
        "run: echo ${{ vars.text }} ${{ raw(vars.text) }} $${{ x }}",
        "run: ${{ raw(vars.text) }}",
        "run: ${{ vars.words }}",
        "run: {shell: echo $TOKEN, env: {}}",
        "run: {argv: [a], env: {TOKEN: '${{ secrets.TOKEN }}', B: '${{ vars.deep }}'}}",
        "stop: {match: {cmdline: '${{ vars.text }}('}}",
        "stop: {step: '${{ vars.text }}'}",
        "launch: {command: [a], profile: '${{ vars.text }}'}",
        "patch: {for: later, show: ['x[\"a\"] + 1']}",
        "patch: {file: /a, since: start}",
        "patch: {file: /a, since: done}",
        "launch: {command: '${{ vars.words }}', port: '${{ vars.text }}', settle: '${{ vars.text }}s', at_end: '${{ vars.text }}'}",
    ],
)
def test_good_texts_are_let_through(step):
    valid(f"{UP}  - {step}\n  - {{id: later, launch: {{command: [a]}}}}\n", head=HEADS)


@pytest.mark.parametrize(("launches", "right"), [(0, False), (1, True), (2, False)])
def test_a_patch_may_leave_out_its_launch_only_when_there_is_one(launches, right):
    steps = "  - patch: {show: [x]}\n" + "".join(f"  - {{id: l{n}, launch: {{command: [a]}}}}\n" for n in range(launches))
    if right:
        valid(steps)
    else:
        found = the_problem(steps)
        assert (found.code, place(found)) == ("missing-key", (4, 5))
        assert ("l0" in (found.hint or "")) == (launches == 2)


def test_a_rule_between_keys_is_not_broken_by_what_is_known_only_later():
    """`match: {port: …}` is there, whatever the expression gives."""
    valid("  - {id: up, launch: {command: [a]}}\n  - stop: {match: {port: '${{ steps.up.pid }}'}}\n")
    assert the_problem("  - stop: {match: {}}\n").summary == "an empty match matches everything"


def test_the_place_in_a_folded_text_is_the_line_of_the_name():
    found = the_problem("  - run: |\n      set -e\n      echo ${{ vars.nope }}\n")
    assert place(found) == (6, 16)
