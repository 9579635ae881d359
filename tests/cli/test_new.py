"""`runbook new`: a template that is valid, and a shell script as a playbook."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from runbook.cli.main import exit_code


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_playbook_is_valid_and_in_the_form(here, capsys):
    assert exit_code(["new", "my_check"]) == 0
    assert "next: runbook run my_check.yaml" in capsys.readouterr().err
    assert "name: my_check\n" in (here / "my_check.yaml").read_text()
    assert exit_code(["validate", "my_check.yaml"]) == 0 and exit_code(["fmt", "--check", "my_check.yaml"]) == 0
    assert exit_code(["new", "my_check"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_it_goes_where_playbooks_lie_and_names_the_schema_there(here, capsys):
    (here / "playbooks").mkdir()
    (here / "schemas").mkdir()
    (here / "schemas" / "playbook.schema.json").write_text("{}")
    assert exit_code(["new", "x.yaml"]) == 0
    first = (here / "playbooks" / "x.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../schemas/playbook.schema.json"
    assert "runbook schema" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["a b"], ["../x"], ["--from-shell", "nope.sh"], ["--from-shell", "/"]])
def test_what_cannot_be_made_is_a_usage_error(words, capsys):
    assert exit_code(["new", *words]) == 2
    assert "Error: " in capsys.readouterr().err


def test_a_script_on_stdin_becomes_a_playbook_on_stdout_and_its_traps_on_stderr(here, capsys, monkeypatch):
    script = b"pkill -9 python\nnohup python -m sglang.launch_server --port 8000 &\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script)))
    assert exit_code(["new", "mine", "--from-shell", "-"]) == 0
    out, err = capsys.readouterr()
    assert "name: mine\n" in out and "profile: sglang" in out
    assert "-:1:1: warning[wide-kill]" in err and "   | ^^^^^^^^^^^^^^^" in err and "warning[lost-output]" in err and "4 warnings; " in err
    (here / "mine.yaml").write_text(out)
    assert exit_code(["validate", "mine.yaml"]) == 0 and exit_code(["fmt", "--check", "mine.yaml"]) == 0


def test_a_file_that_is_no_shell_script_is_said_with_its_place(here, capsys):
    (here / "x.sh").write_text("if a; then\n")
    assert exit_code(["new", "--from-shell", "x.sh"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("x.sh:1:7: error[shell-syntax]")


def test_a_translated_script_names_the_schema_only_where_it_lies(here, capsys):
    (here / "x.sh").write_text("nvidia-smi\n")
    assert exit_code(["new", "--from-shell", "x.sh"]) == 0
    assert "$schema" not in capsys.readouterr().out
    (here / "playbook.schema.json").write_text("{}")
    assert exit_code(["new", "--from-shell", "x.sh"]) == 0
    assert capsys.readouterr().out.startswith("# yaml-language-server: $schema=playbook.schema.json\n")
