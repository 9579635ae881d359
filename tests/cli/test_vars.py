"""`runbook vars`: where each variable has its value from; and that a run gets that value."""

from __future__ import annotations

import json

import pytest

from runbook.cli.main import exit_code

BOOK = """\
runbook: 1
inputs:
  port: {type: integer, default: 8000}
  who: {help: whom to greet}
hosts: {a: {target: local, vars: {dir: /mine}}}
vars: {dir: /tmp, name: '${{ vars.port }}'}
vars_files: [more.yaml]
steps:
  - set: {name: x, other: 5}
  - run: echo ${{ vars.dir }} ${{ vars.who }} ${{ vars.limit }}
"""


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """The rows of a command line, by name and host."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.yaml").write_text(BOOK)
    (tmp_path / "more.yaml").write_text("port: 8100\napi_key: abcdefgh\n")
    (tmp_path / "typed.yaml").write_text("port: 8200\n")
    (tmp_path / "hosts.yaml").write_text("hosts:\n  local: {vars: {dir: /theirs, limit: 3}}\n")

    def ask(*argv):
        assert exit_code(["vars", "book.yaml", "--json", *argv]) == 0
        return {(row["name"], row["host"]): row for row in json.loads(capsys.readouterr().out)}

    return ask


def chain(row):
    """What counts, then what it replaced, nearest first."""
    return [(one["value"], one["source"], one["line"]) for one in (row, *row["replaces"])]


def test_each_layer_is_named_with_what_it_replaced(told):
    rows = told("-e", "@typed.yaml", "-e", "port=9000")
    assert chain(rows["port", None]) == [
        (9000, "-e", None),
        (8200, "-e @typed.yaml", None),
        (8100, "vars_files", 1),
        (8000, "default of the input", 3),
    ]
    assert chain(rows["dir", None]) == [("/tmp", "vars", 6)]
    assert chain(rows["dir", "local"]) == [("/mine", "hosts of the playbook", 5), ("/theirs", "hosts.yaml", None), ("/tmp", "vars", 6)]
    assert chain(rows["limit", "local"]) == [(3, "hosts.yaml", None)]
    assert rows["name", None]["set_by"] == ["s01_set"] and rows["other", None]["source"] == "a `set` step"
    assert rows["who", None]["source"] == "input without a default: give it by -e" and rows["who", None]["line"] == 4


def test_a_secret_is_not_shown(told):
    assert chain(told()["api_key", None]) == [("***", "vars_files", 2)]


def test_an_override_hides_what_hosts_say(told):
    rows = told("-e", "dir=/typed")
    assert rows["dir", None]["value"] == "/typed" and ("dir", "local") not in rows


def test_people_read_it_too_and_mistakes_are_those_of_validate(told, capsys):
    assert exit_code(["vars", "book.yaml", "-e", "port=9000"]) == 0
    out = capsys.readouterr().out
    assert "port     9000\n" in out and "instead of 8100 from vars_files (more.yaml:1)" in out
    assert exit_code(["vars", "book.yaml", "-e", "port=many"]) == 2
    assert "`-e port=many`: the input is a whole number" in capsys.readouterr().err
    assert exit_code(["run", "book.yaml"]) == 2
    err = capsys.readouterr().err
    assert "book.yaml:4:3" in err and "the input `who` is required: whom to greet" in err and "-e who=" in err
