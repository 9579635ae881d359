"""Playbooks that include others: what a file sees, what is checked where, and that every mistake is placed in its own file."""

from __future__ import annotations

from typing import Any

import pytest

from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import IncludeNode, Playbook, StepNode
from tests.playbook.loading import load

HEAD = "runbook: 1\nhosts: {box: local}\n"
LAUNCH = """\
runbook: 1
hosts: {gpu: local}
inputs:
  port: {type: integer, default: 8000, help: where it listens}
  mode: {type: text, default: eager, choices: [eager, graph]}
outputs:
  pid: ${{ steps.server.pid }}
steps:
  - id: server
    launch: {command: [serve, '${{ vars.port }}']}
  - stop: {step: server}
"""


def read(top: str, **files: str) -> tuple[Playbook | None, list[Diagnostic]]:
    """A playbook with the files that it includes, by their names."""

    def text(file: str) -> bytes:
        if file not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return files[file].encode()

    return load(top, read=text, find=lambda name, file: name if name in files else None)


def found(top: str, **files: str) -> list[tuple[str, str, int, int]]:
    """Code and place of each problem."""
    return [(one.code, one.span.file, one.span.line, one.span.column) for one in read(top, **files)[1] if one.span]


def valid(top: str, **files: str) -> Playbook:
    playbook, problems = read(top, **files)
    assert playbook is not None and not problems, [f"{one.span}: {one.summary}" for one in problems]
    return playbook


def included(playbook: Playbook, number: int = 0) -> IncludeNode:
    node = playbook.steps[number]
    assert isinstance(node, IncludeNode)
    return node


def test_the_steps_of_a_file_stand_under_the_id_of_the_include():
    book = valid(f"{HEAD}steps:\n  - id: up\n    include: {{playbook: launch, with: {{port: 9000}}}}\n  - run: 'true'\n", launch=LAUNCH)
    up = included(book)
    assert [node.id for node in up.steps] == ["up.server", "up.s02_stop"] and book.steps[1].id == "s02_run"
    server, stop = up.steps
    assert isinstance(server, StepNode) and isinstance(stop, StepNode)
    assert stop.body["step"] == "up.server", "a step is named by its id in the run"
    assert server.common.host == ("box",) and up.given == {"port": 9000} and up.vars == {"port": 8000, "mode": "eager"}
    assert server.span.file == "launch" and server.spans["command.1"].line == 10
    assert book.files == {"launch": LAUNCH} and book.includes == {"book.yaml": {"launch": "launch"}}


def test_outside_only_outputs_are_values_and_only_keys_may_name_an_inner_step():
    top = f"{HEAD}steps:\n  - {{id: up, include: launch}}\n  - stop: {{step: up.server}}\n  - assert: "
    valid(f"{top}steps.up.pid > 1\n", launch=LAUNCH)
    assert found(f"{top}steps.up.port > 1\n", launch=LAUNCH) == [("unknown-result", "book.yaml", 6, 13)]
    assert found(f"{top}steps.server.pid > 1\n", launch=LAUNCH) == [("unknown-step-id", "book.yaml", 6, 13)]
    assert found(f"{HEAD}steps:\n  - stop: {{step: up.server}}\n  - {{id: up, include: launch}}\n", launch=LAUNCH) == [
        ("later-step", "book.yaml", 4, 18)
    ]


def test_a_file_sees_no_names_of_the_one_around_it():
    lib = f"{HEAD}steps:\n  - run: echo ${{{{ vars.mine }}}}\n  - assert: steps.before.exit == 0\n"
    top = f"{HEAD}vars: {{mine: 1}}\nsteps:\n  - {{id: before, run: 'true'}}\n  - include: lib\n"
    assert found(top, lib=lib) == [("undefined-var", "lib", 4, 19), ("unknown-step-id", "lib", 5, 13)]


@pytest.mark.parametrize(
    ("with_", "code", "column", "hint"),
    [
        ("{prot: 1}", "unknown-input", 40, "did you mean `port`?"),
        ("{port: x}", "type", 46, None),
        ("{port: '80'}", "type", 46, "drop the quotes: write `80`"),
        ("{mode: egaer}", "choice", 46, "did you mean `eager`?"),
        ("{port: '${{ vars.nope }}'}", "undefined-var", 51, "declare it under `vars:` with a default"),
    ],
)
def test_a_wrong_input_is_found_in_the_including_file(with_, code, column, hint):
    _, problems = read(f"{HEAD}steps:\n  - include: {{playbook: launch, with: {with_}}}\n", launch=LAUNCH)
    assert [(one.code, one.span.column if one.span else 0, one.hint) for one in problems] == [(code, column, hint)]


def test_all_problems_of_all_files_come_at_once_each_in_its_own_file():
    lib = "runbook: 1\nhosts: {box: local}\ninputs: {a: {type: whole}}\nsteps:\n  - rum: x\n  - run: ${{ vars.nope }}\n"
    top = f"{HEAD}steps:\n  - include: lib\n  - include: lib\n  - kil: 1\n"
    assert found(top, lib=lib) == [
        ("unknown-step", "book.yaml", 6, 5),
        ("choice", "lib", 3, 20),
        ("unknown-step", "lib", 5, 5),
        ("undefined-var", "lib", 6, 14),
    ], "and what stands in a file that is included twice is said once"


def test_an_input_without_a_default_must_be_given():
    lib = f"{HEAD}inputs: {{who: {{help: whom to greet}}}}\nsteps:\n  - run: echo ${{{{ vars.who }}}}\n"
    _, problems = read(f"{HEAD}steps:\n  - include: lib\n", lib=lib)
    assert [(one.code, one.summary, one.hint) for one in problems] == [
        ("missing-input", "`lib` needs the input `who`: whom to greet", "add `with: {who: …}`")
    ]
    valid(f"{HEAD}steps:\n  - include: {{playbook: lib, with: {{who: you}}}}\n", lib=lib)


STOP = "runbook: 1\nhosts: {box: local}\ninputs: {server: {type: step}}\nsteps:\n  - stop: {step: '${{ vars.server }}'}\n"


def test_an_input_may_name_a_step_of_the_including_file_also_through_two_files():
    middle = f"{HEAD}inputs: {{it: {{type: step}}}}\nsteps:\n  - include: {{playbook: stop, with: {{server: '${{{{ vars.it }}}}'}}}}\n"
    top = f"{HEAD}steps:\n  - {{id: a, launch: {{command: [x]}}}}\n  - {{id: m, include: {{playbook: middle, with: {{it: a}}}}}}\n"
    inner = included(valid(top, stop=STOP, middle=middle), 1).steps[0]
    assert isinstance(inner, IncludeNode) and isinstance(inner.steps[0], StepNode)
    assert inner.steps[0].id == "m.s01_include.s01_stop" and inner.steps[0].body["step"] == "a"


@pytest.mark.parametrize(
    ("steps", "code", "line"),
    [
        ("  - {id: a, run: 'true'}\n  - include: {playbook: stop, with: {server: a}}\n", "wrong-step", 5),
        ("  - include: {playbook: stop, with: {server: a}}\n  - {id: a, launch: {command: [x]}}\n", "later-step", 4),
        ("  - include: {playbook: stop, with: {server: b}}\n", "unknown-step-id", 4),
        ("  - include: {playbook: stop, with: {server: '${{ run.id }}'}}\n", "type", 4),
    ],
)
def test_a_wrong_step_as_an_input_is_found_where_it_is_given(steps, code, line):
    assert [one[:3] for one in found(f"{HEAD}steps:\n{steps}", stop=STOP)] == [(code, "book.yaml", line)]


def test_recursion_is_refused_and_names_the_way():
    a, b = (f"{HEAD}steps:\n  - include: {other}\n" for other in "ba")
    _, problems = read(f"{HEAD}steps:\n  - include: a\n", a=a, b=b)
    assert [(one.code, one.summary) for one in problems] == [("include-loop", "these playbooks include each other: a → b → a")]


@pytest.mark.slow
def test_many_includes_end():
    files = {f"f{n}": f"{HEAD}steps:\n" + f"  - include: f{n + 1}\n" * 4 for n in range(8)}
    codes = {one.code for one in read(f"{HEAD}steps:\n  - include: f0\n", **files, f8=f"{HEAD}steps: [{{run: 'true'}}]\n")[1]}
    assert codes == {"too-many-includes"}


@pytest.mark.parametrize(
    ("name", "code"), [("nope", "unknown-playbook"), ("'${{ vars.x }}'", "type"), ("empty", "empty-file"), ("list", "type")]
)
def test_what_cannot_be_included_says_so(name, code):
    top = f"{HEAD}vars: {{x: 1}}\nsteps:\n  - {{id: up, include: {name}}}\n  - assert: steps.up.anything == 1\n"
    assert [one[0] for one in found(top, empty="", list="- 1\n")] == [code], "and what it would give is no second mistake"


@pytest.mark.parametrize(
    ("head", "step", "roles"),
    [
        ("{box: local}", "include: two", None),
        ("{gpu: local, box: lab}", "include: one", {"gpu": ("gpu",)}),
        ("{a: local, b: lab}", "{include: one, host: b}", {"gpu": ("b",)}),
        ("{a: local, b: lab}", "include: {playbook: one, hosts: {gpu: [a, b]}}", {"gpu": ("a", "b")}),
        ("{a: local, b: lab}", "include: {playbook: two, hosts: {gpu: b, cpu: a}}", {"gpu": ("b",), "cpu": ("a",)}),
    ],
)
def test_each_role_of_a_file_is_placed_on_roles_of_ours(head, step, roles):
    one = "runbook: 1\nhosts: {gpu: local}\nsteps: [{run: 'true'}]\n"
    two = "runbook: 1\nhosts: {gpu: local, cpu: lab}\nsteps: [{host: gpu, run: 'true'}]\n"
    up = included(valid(f"runbook: 1\nhosts: {head}\nsteps:\n  - {step}\n", one=one, two=two))
    assert dict(up.roles) == (roles or {"gpu": ("box",), "cpu": ("box",)})


def test_a_role_that_nobody_places_is_an_error():
    one = "runbook: 1\nhosts: {gpu: local}\nsteps: [{run: 'true'}]\n"
    assert found("runbook: 1\nhosts: {a: local, b: lab}\nsteps:\n  - include: one\n", one=one) == [("unplaced-role", "book.yaml", 4, 5)]


def test_a_secret_that_is_given_stays_out_of_command_lines():
    lib = f"{HEAD}inputs: {{token: {{}}}}\nsteps:\n  - run: echo ${{{{ vars.token }}}}\n"
    top = f"{HEAD}secrets: [KEY]\nsteps:\n  - include: {{playbook: lib, with: {{token: '${{{{ secrets.KEY }}}}'}}}}\n"
    assert found(top, lib=lib) == [("secret-in-argv", "lib", 5, 19)]


def test_secrets_of_included_files_are_declared_for_the_run():
    lib = f"{HEAD}secrets: [{{name: KEY, required: true}}]\nsteps:\n  - run: {{shell: 'true', env: {{K: '${{{{ secrets.KEY }}}}'}}}}\n"
    assert [secret.name for secret in valid(f"{HEAD}steps: [{{include: lib}}]\n", lib=lib).secrets] == ["KEY"]


def test_step_keys_do_not_stand_on_an_include():
    top = f"{HEAD}steps:\n  - include: launch\n    loop: [1]\n    retry: {{for: 3s}}\n"
    assert sorted(found(top, launch=LAUNCH)) == [("misplaced-key", "book.yaml", 5, 5), ("misplaced-key", "book.yaml", 6, 5)]


def test_a_journal_s_texts_alone_give_the_same_playbook():
    """A run is resumed and cancelled without its files."""
    middle = f"{HEAD}vars_files: [more]\nsteps:\n  - include: launch\n  - run: echo ${{{{ vars.a }}}}\n"
    files: dict[str, Any] = {"launch": LAUNCH, "middle": middle, "more": "a: 5\n"}
    book = valid(f"{HEAD}steps:\n  - include: middle\n", **files)
    assert book.files == files
    again, _ = load(book.text, read=lambda file: book.files[file].encode(), find=lambda name, file: book.includes[file][name])
    assert again == book


def test_what_cannot_stand_on_an_include_comes_with_what_is_written_for_it():
    keys = "    loop: [1]\n    retry: {for: 3s}\n    ignore_errors: true\n"
    top = f"{HEAD}steps:\n  - id: up\n    include: launch\n{keys}  - assert: steps.up.status == 'passed'\n"
    hints = {one.summary.split("`")[1]: one.hint for one in read(top, launch=LAUNCH)[1]}
    assert "one include for each item" in hints["loop"]
    assert "on the step of that file" in hints["retry"]
    assert "`block:` that has a `rescue:`" in hints["ignore_errors"]
    assert hints["up"] == "declare it in that file: `outputs: {status: '${{ steps.ID.status }}'}`"
