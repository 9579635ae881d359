"""Keys of a playbook that stand a blank or two in: one message for each, and the rest is checked as if they stood right."""

import pytest

from tests.playbook.loading import load, place

STEP = "  - run: x\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"runbook: 1\nhosts: {{box: local}}\n steps:\n{STEP}", (3, 2)),
        (f"runbook: 1\nhosts:\n  box: local\n  steps:\n{STEP}", (4, 3)),
        (f"runbook: 1\nhosts:\n  box: local\nvars:\n  a: 1\n  steps:\n{STEP}", (6, 3)),
        (f"runbook: 1\nhosts:\n  box: local\n  vars:\n    a: 1\nsteps:\n{STEP}", (4, 3)),
        (f"runbook: 1\nhosts: {{box: local}}\nsteps:\n{STEP} always:\n{STEP}", (5, 2)),
        (f" runbook: 1\nhosts: {{box: local}}\nsteps:\n{STEP}", (1, 2)),
    ],
)
def test_a_key_that_slipped_is_one_mistake(text, where):
    _, found = load(text)
    assert [(one.code, place(one)) for one in found] == [("indented-key", where)]


@pytest.mark.parametrize("inner", ["name: x", "timeout: 5m", "hosts: [a, b]", "vars: {a: 1}", "steps: 3"])
def test_a_variable_may_have_the_name_of_such_a_key(inner):
    playbook, found = load(f"runbook: 1\nhosts: {{box: local}}\nvars:\n  {inner}\nsteps:\n{STEP}")
    assert playbook is not None and found == []


@pytest.mark.parametrize("word", ["colon", "blank"])
def test_a_key_that_took_its_value_along(word):
    written = {"colon": "shell x", "blank": "shell:x"}[word]
    _, found = load(f"runbook: 1\nhosts: {{box: local}}\nsteps:\n  - run: {{{written}}}\n")
    assert ("unknown-key", f"write `shell: x`: a {word} is missing") in [(one.code, one.hint) for one in found]
