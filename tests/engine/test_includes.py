"""Included files while they run: whose names an expression sees, what comes back, what a condition or a failure does."""

from __future__ import annotations

import pytest

from runbook.model.event import StepEnded
from tests.engine.play import play

HEAD = "runbook: 1\nhosts: {box: local}\n"
LIB = f"""{HEAD}
inputs: {{n: {{type: integer, default: 1}}, word: {{default: w}}}}
outputs:
  value: ${{{{ steps.first.value }}}}
  doubled: ${{{{ vars.n * 2 }}}}
  changed: ${{{{ vars.word }}}}
vars: {{own: '${{{{ vars.n + 1 }}}}'}}
steps:
  - id: first
    say: {{value: '${{{{ vars.own }}}}'}}
  - set: {{word: changed}}
"""


@pytest.fixture
def run(tmp_path):
    """Play a playbook with these files beside it."""

    def go(text, options=None, **files):
        (tmp_path / "lib").mkdir()
        for name, content in files.items():
            (tmp_path / "lib" / name).write_text(content)
        return play(text, tmp_path / "run", find=lambda name, file: str(tmp_path / "lib" / name), **(options or {}))

    return go


def test_a_file_runs_with_its_inputs_and_gives_its_outputs(run):
    top = f"""{HEAD}
vars: {{n: 40, word: ours}}
steps:
  - {{id: a, include: {{playbook: lib, with: {{n: '${{{{ vars.n + 1 }}}}'}}}}}}
  - {{id: b, include: lib}}
  - assert:
      - steps.a.value == 42 and steps.a.doubled == 82 and steps.a.changed == 'changed'
      - steps.b.value == 2 and steps.b.doubled == 2
      - vars.word == 'ours'
"""
    ended, events, said = run(top, lib=LIB)
    assert ended.verdict == "passed", ended.reason
    assert [step for step, _ in said] == ["a.first", "b.first"]
    assert events[0].files and list(events[0].includes["t.yaml"]) == ["lib"]


def test_an_include_inside_an_include_and_a_value_that_passes_both(run):
    middle = f"{HEAD}inputs: {{n: {{}}}}\noutputs: {{value: '${{{{ steps.deep.value }}}}'}}\nsteps: [{{id: deep, include: {{playbook: lib, with: {{n: '${{{{ vars.n }}}}'}}}}}}]\n"
    top = f"{HEAD}steps:\n  - {{id: s, say: {{value: 6}}}}\n  - {{id: m, include: {{playbook: middle, with: {{n: '${{{{ steps.s.value }}}}'}}}}}}\n  - assert: steps.m.value == 7\n"
    ended, _, said = run(top, lib=LIB, middle=middle)
    assert ended.verdict == "passed", ended.reason
    assert [step for step, _ in said] == ["s", "m.deep.first"]


def test_a_value_that_shows_its_type_only_now_is_refused_with_the_name_of_the_input(run):
    top = f"{HEAD}steps:\n  - {{id: s, say: {{value: six}}}}\n  - {{id: m, include: {{playbook: lib, with: {{n: '${{{{ steps.s.value }}}}'}}}}}}\n"
    ended, _, _ = run(top, lib=LIB)
    assert ended.verdict == "failed" and "input of `m`: `n` must be a whole number, not the text `six`" in ended.reason


@pytest.mark.parametrize("options", [{}, {"tags": ["two"]}, {"start_at": "m.b"}])
@pytest.mark.parametrize(("word", "verdict"), [("six", "failed"), ("6", "passed")])
def test_the_verdict_on_a_wrong_input_does_not_hang_on_the_steps_that_are_chosen(run, options, word, verdict):
    lib = f"{HEAD}inputs: {{n: {{type: integer}}}}\nsteps:\n  - {{id: a, say: {{value: '${{{{ vars.n }}}}'}}}}\n  - {{id: b, say: passed, tags: [two]}}\n"
    top = f"{HEAD}vars: {{w: {word}}}\nsteps:\n  - {{id: m, include: {{playbook: lib, with: {{n: '${{{{ vars.w }}}}'}}}}}}\n"
    ended, _, said = run(top, lib=lib, options=options)
    assert ended.verdict == verdict, ended.reason
    assert verdict == "passed" or (said == [] and "step `m` (include): input of `m`: `n` must be a whole number" in ended.reason)


def test_what_a_skipped_include_would_give_is_unknown(run):
    top = f"{HEAD}steps:\n  - {{id: m, include: lib, when: 1 == 2}}\n  - assert: steps.m.value == 2\n"
    ended, _, said = run(top, lib=LIB)
    assert ended.verdict == "undecided" and "step `m.first` did not run" in ended.reason and said == []


def test_always_of_a_file_runs_when_its_steps_are_over_also_after_a_failure(run):
    lib = f"{HEAD}steps:\n  - say: failed\n  - say: passed\nalways:\n  - {{id: after, say: passed}}\n"
    top = f"{HEAD}steps:\n  - block:\n      - {{id: m, include: lib}}\n    rescue:\n      - {{id: saved, say: passed}}\n"
    ended, events, said = run(top, lib=lib)
    assert ended.verdict == "passed" and [step for step, _ in said] == ["m.s01_say", "m.after", "saved"]
    assert {end.part for end in events if isinstance(end, StepEnded) and end.step == "m.after"} == {"always"}


def test_a_file_runs_on_the_hosts_that_it_is_placed_on(run):
    lib = "runbook: 1\nhosts: {x: local}\nsteps: [{id: s, say: {value: '${{ host.name }} of ${{ len(hosts.x) }}'}}]\noutputs: {names: '${{ steps.s.hosts }}'}\n"
    top = "runbook: 1\nhosts: {a: local, b: [h1, h2]}\nsteps:\n  - {id: m, include: {playbook: lib, hosts: {x: b}}}\n  - assert: steps.m.names['h2'].value == 'h2 of 2'\n"
    ended, _, said = run(top, lib=lib)
    assert ended.verdict == "passed", ended.reason
    assert sorted(said) == [("m.s", "h1"), ("m.s", "h2")]
