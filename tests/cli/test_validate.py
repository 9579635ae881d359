"""`runbook validate` on folders, for programs, and fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from runbook.cli.new import TEMPLATE

GOOD = "runbook: 1\nhosts: {box: local}\nsteps:\n  - run: uname\n"
BAD = "runbook: 1\nhosts: {box: local}\nsteps:\n  - rum: uname\n"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Two playbooks, one of them wrong; a vars file and a hosts.yaml, which are none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books" / "lib").mkdir(parents=True)
    (tmp_path / "books" / "good.yaml").write_text(GOOD)
    (tmp_path / "books" / "lib" / "bad.yml").write_text(BAD)
    (tmp_path / "books" / "vars.yaml").write_text("port: 8000\n")
    return tmp_path / "books"


def test_of_a_folder_the_playbooks_are_checked_and_nothing_else(folder, capsys):
    assert exit_code(["validate", "books"]) == 2
    err = capsys.readouterr().err
    assert "books/lib/bad.yml:4:5: error" in err and err.endswith("1 error in 2 files\n")
    assert exit_code(["validate", "books/good.yaml", "books/good.yaml"]) == 0


def test_the_answers_for_programs_go_to_stdout_alone(folder, capsys):
    said = {}
    for form in ("json", "sarif", "github"):
        assert exit_code(["validate", "--format", form, "books"]) == 2
        out, err = capsys.readouterr()
        assert err == ""
        said[form] = out
    assert json.loads(said["json"])["diagnostics"][0]["line"] == 4
    assert json.loads(said["sarif"])["runs"][0]["results"][0]["locations"]
    assert said["github"].startswith("::error file=books/lib/bad.yml,line=4,col=5,")


@pytest.mark.parametrize("words", [["books/vars"], ["--json", "--format", "sarif", "books"], ["--format", "xml", "books"]])
def test_what_cannot_be_asked_is_a_usage_error(folder, words):
    (folder / "vars").mkdir()
    assert exit_code(["validate", *words]) == 2


@pytest.mark.slow
def test_two_hundred_playbooks_take_less_than_two_seconds_of_cpu(tmp_path):
    """As `runbook new` writes them; beyond the start, which the first one pays for. CPU time, since other tests may run beside this one."""
    book = TEMPLATE.read_text()
    for number in range(200):
        (tmp_path / f"book{number}.yaml").write_text(book.replace("8000", str(8000 + number)))
    code = (
        "import sys, time; from runbook.cli.main import exit_code\n"
        f"exit_code(['validate', {str(tmp_path / 'book0.yaml')!r}]); begun = time.process_time()\n"
        f"exit_code(['validate', {str(tmp_path)!r}]); print(time.process_time() - begun)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.endswith("no errors in 200 files\n"), done.stderr[-300:]
    assert float(done.stdout) < 2, done.stdout


@pytest.mark.parametrize("begin", ["\ufeffrunbook: 1\n", '"runbook": 1\n', "'runbook': 1\n"])
def test_a_playbook_that_begins_otherwise_is_one_too(tmp_path, capsys, begin):
    (tmp_path / "bad.yaml").write_text(begin + "bogus: 2\nsteps: []\n", encoding="utf-8")
    assert exit_code(["validate", str(tmp_path)]) == 2
    assert "bogus" in capsys.readouterr().err


def test_a_class_that_only_grep_knows_is_refused_with_what_to_write(tmp_path, capsys):
    path = tmp_path / "p.yaml"
    path.write_text("runbook: 1\nhosts: {a: local}\nsteps:\n  - grep: {log: /tmp/x, pattern: 'took [[:digit:]]+'}\n")
    assert exit_code(["validate", str(path)]) == 2
    assert "`[:digit:]` is no class here: write `\\d`" in capsys.readouterr().err


def test_a_profile_behind_a_byte_order_mark_is_one(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbfprofile: mine\r\nextends: generic\r\n")
    assert exit_code(["validate", str(path)]) == 0, capsys.readouterr().err
