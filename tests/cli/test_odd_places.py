"""Called where nothing is: from a folder that was deleted, or with streams that were closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from runbook.cli.main import exit_code
from tests.cli.running import ROOT

BOOK = "runbook: 1\nhosts: {box: local}\nsteps: [{run: echo a}]\n"


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A playbook, called from a folder that is there no more."""
    path = tmp_path / "book.yaml"
    path.write_text(BOOK)
    (tmp_path / "gone").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    return str(path)


@pytest.mark.parametrize("argv", [["validate"], ["plan"], ["vars"], ["fmt", "--check"]])
def test_what_needs_no_folder_does_without(book, argv):
    assert exit_code([*argv, book]) == 0


def test_hosts_are_those_of_the_users_folder(book, capsys):
    assert exit_code(["hosts", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"][0]["kind"] == "local"


def test_what_needs_it_says_that_it_was_deleted(book, capsys):
    assert exit_code(["run", book, "--out", "here", "--json"]) == 2
    assert "has been deleted: go to one that is there" in json.loads(capsys.readouterr().out)["diagnostics"][0]["summary"]


@pytest.mark.slow
def test_a_run_begins_and_ends_there(book):
    assert exit_code(["run", book, "--json"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code"), [("fmt -", 2), ("new --from-shell -", 0)])
def test_a_closed_stdin_has_nothing_to_say(tmp_path, words, code):
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" -m runbook.cli.main {words} <&-', sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code and "bug in runbook" not in ended.stderr
