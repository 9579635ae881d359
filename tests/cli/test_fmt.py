"""`runbook fmt`, as somebody types it."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pytest

from runbook.cli.main import exit_code

UGLY = "name: n\nrunbook: 1\nsteps:\n- run: a  # why\n  id: one\n"
FORM = "runbook: 1\nname: n\nsteps:\n  - id: one\n    run: a  # why\n"


def test_a_file_is_changed_in_place_with_its_mode_and_named(tmp_path: Path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text(UGLY)
    path.chmod(0o640)
    assert exit_code(["fmt", str(path)]) == 0
    assert path.read_text() == FORM and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert capsys.readouterr() == ("", f"changed {path}\n")
    assert exit_code(["fmt", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert [one.name for one in tmp_path.iterdir()] == ["a.yaml"]


def test_check_changes_nothing_and_answers_by_its_exit_code(tmp_path: Path, capsys):
    (tmp_path / "below").mkdir()
    path = tmp_path / "below" / "a.yml"
    path.write_text(UGLY)
    (tmp_path / "good.yaml").write_text(FORM)
    assert exit_code(["fmt", "--check", str(tmp_path)]) == 1
    assert path.read_text() == UGLY
    assert capsys.readouterr().err == f"would change {path}\n"


def test_what_is_no_yaml_is_an_error_with_its_place_and_the_rest_is_done(tmp_path: Path, capsys):
    (tmp_path / "a.yaml").write_text("runbook: 1\na: [\n")
    (tmp_path / "b.yaml").write_text(UGLY)
    assert exit_code(["fmt", str(tmp_path)]) == 2
    assert "a.yaml:3:1: error" in capsys.readouterr().err
    assert (tmp_path / "b.yaml").read_text() == FORM


def test_a_filter(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UGLY.encode())))
    assert exit_code(["fmt", "-"]) == 0
    assert capsys.readouterr() == (FORM, "")


@pytest.mark.parametrize("name", ["nope.yaml", "/"])
def test_a_file_that_is_not_there_is_a_usage_error(name, capsys, tmp_path: Path):
    assert exit_code(["fmt", str(tmp_path / name) if name != "/" else str(tmp_path / "x" / "y.yaml")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_the_playbooks_that_come_with_runbook_are_in_the_form():
    assert exit_code(["fmt", "--check", str(Path(__file__).parents[2] / "playbooks")]) == 0


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_and_a_byte_order_mark_stay(tmp_path: Path, end, mark):
    path = tmp_path / "a.yaml"
    path.write_bytes(mark + UGLY.encode().replace(b"\n", end))
    assert exit_code(["fmt", str(path)]) == 0
    assert path.read_bytes() == mark + FORM.encode().replace(b"\n", end)
    assert exit_code(["fmt", "--check", str(path)]) == 0


FOREIGN = "services:\n    web:\n        profile: x\n\n\n        b:   1\n"


@pytest.mark.parametrize("text", [FOREIGN, "- hosts: all\n", "steps:\n- run: x\n"])
def test_other_yaml_is_left_alone(tmp_path: Path, capsys, monkeypatch, text):
    path = tmp_path / "compose.yaml"
    path.write_text(text)
    assert exit_code(["fmt", str(path)]) == 0
    assert path.read_text() == text and f"left alone {path}: no playbook and no profile" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert exit_code(["fmt", "-"]) == 0
    assert capsys.readouterr().out == text


def test_of_a_folder_other_yaml_is_no_mistake(tmp_path: Path, capsys):
    (tmp_path / "helm.yaml").write_text("a: {{ .Values.x }}\n")
    (tmp_path / "vars.yaml").write_text("b:   1\n")
    (tmp_path / "a.yaml").write_text(UGLY)
    assert exit_code(["fmt", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"would change {tmp_path}/a.yaml\n"
