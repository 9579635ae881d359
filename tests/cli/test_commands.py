"""validate, plan, steps, schema and list, as somebody types them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from runbook.cli.main import exit_code
from runbook.steps import TABLE

BOOK = """\
runbook: 1
name: Look
description: Is the box there?
hosts: {box: local}
vars: {what: hello, times: 2}
steps:
  - id: say
    run: echo ${{ vars.what }}
  - assert: steps.say.exit == 0
"""


@pytest.fixture
def book(tmp_path: Path, monkeypatch) -> Path:
    """A playbook in ./playbooks of the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "playbooks").mkdir()
    path = tmp_path / "playbooks" / "look.yaml"
    path.write_text(BOOK)
    return path


def test_a_valid_playbook_passes_in_silence_but_for_the_count(book, capsys):
    assert exit_code(["validate", str(book)]) == 0
    assert capsys.readouterr() == ("", "no errors in 1 file\n")


def test_the_json_answer_of_a_valid_playbook_is_passed(book, capsys):
    assert exit_code(["validate", "--json", str(book), "-e", "times=3"]) == 0
    assert json.loads(capsys.readouterr().out) == {"verdict": "passed", "diagnostics": []}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("tmes=3", "did you mean `times`?"),
        ("times=three", "the default is a whole number"),
        ("@nope.yaml", "cannot read `nope.yaml`"),
        ("times", "names no variable"),
    ],
)
def test_a_wrong_override_is_an_error_of_the_playbook(book, capsys, override, said):
    assert exit_code(["validate", str(book), "-e", override]) == 2
    assert said in capsys.readouterr().err


def test_several_files_are_counted_together(book, capsys):
    (book.parent / "bad.yaml").write_text("runbook: 1\nsteps: [{rum: x}]\n")
    assert exit_code(["validate", str(book), str(book.parent / "bad.yaml")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "1 error in 2 files"


def test_a_playbook_can_be_named(book, capsys):
    assert exit_code(["validate", "look"]) == 0


def test_a_plan_shows_what_would_be_done_and_where(book, capsys):
    assert exit_code(["plan", "look", "-e", "what=it's", "-H", "box=me@far:2222"]) == 0
    out = capsys.readouterr().out
    assert "box: me@far:2222" in out and "run: echo 'it'\"'\"'s'" in out and "check that steps.say.exit == 0" in out


def test_a_plan_of_an_invalid_playbook_is_its_mistakes(book, capsys):
    book.write_text(BOOK.replace("vars.what", "vars.waht"))
    assert exit_code(["plan", "look"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "did you mean `vars.what`?" in err


def test_a_plan_for_programs_has_its_lines_and_hosts(book, capsys):
    assert exit_code(["plan", "look", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["hosts"] == {"box": ["local"]} and "    run: echo hello" in answer["lines"]


@pytest.mark.parametrize("command", ["validate", "plan", "vars", "run"])
def test_programs_get_the_mistakes_of_a_playbook_from_every_command(book, capsys, command):
    book.write_text(BOOK.replace("vars.what", "vars.waht"))
    assert exit_code([command, "look", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], [one["code"] for one in answer["diagnostics"]]) == ("invalid", ["undefined-var"])


def test_the_list_names_what_can_be_run(book, capsys):
    (book.parent / "broken.yaml").write_text("a: [\n")
    assert exit_code(["list", "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["look"] == {"id": "look", "name": "Look", "description": "Is the box there?", "file": "playbooks/look.yaml"}
    assert rows["broken"]["name"].startswith("(not a valid playbook")
    assert exit_code(["list"]) == 0
    assert "look" in capsys.readouterr().out


def test_every_step_type_is_listed_and_described(capsys):
    assert exit_code(["steps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TABLE)
    for name in TABLE:
        assert exit_code(["steps", name]) == 0
        page = capsys.readouterr().out
        assert page.startswith(f"{name}: ") and all(f"  {key}" in page for key in [*TABLE[name].RESULTS])


def test_a_description_has_a_form_for_programs(capsys):
    assert exit_code(["steps", "kill", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    keys = {key["path"]: key for key in page["keys"]}
    assert keys["tree"]["default"] is True and "match[].port" in keys
    assert set(page["results"]) == set(TABLE["kill"].RESULTS)


def test_an_unknown_step_type_is_suggested(capsys):
    assert exit_code(["steps", "kil"]) == 2
    assert "did you mean `kill`?" in capsys.readouterr().err


def test_the_schema_takes_a_valid_playbook(capsys):
    from runbook.lang.yaml_loader import load

    assert exit_code(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    document = load(BOOK, "look.yaml")[0]
    assert document is not None
    jsonschema.Draft202012Validator(schema).validate(document.data)
