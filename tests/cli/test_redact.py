"""`runbook redact`, as somebody types it."""

from __future__ import annotations

import json

import pytest

from runbook.cli.main import exit_code
from tests.cli.running import runbook
from tests.support.secret_texts import made
from tests.tickets.journal import RUN, hung, write

TOKEN = made("hf_", 34)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_file_goes_to_stdout_and_the_report_to_stderr(tmp_path, capfdbinary):
    tmp_path.joinpath("a.log").write_bytes(b"\xff one\n" + TOKEN.encode() + b"\r\n\xe2\x80\x93")
    assert exit_code(["redact", "a.log"]) == 0
    out, err = capfdbinary.readouterr()
    assert out == b"\xff one\n***hf-token***\r\n\xe2\x80\x93" and b"hf-token \xc3\x971: a.log:2" in err


def test_check_writes_nothing_and_tells_by_its_exit_code(tmp_path, capsys):
    tmp_path.joinpath("a.log").write_text(TOKEN)
    tmp_path.joinpath("b.log").write_text("nothing here")
    assert exit_code(["redact", "a.log", "--check", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["masked"] == {"hf-token": 1} and answer["places"]["hf-token"] == [{"file": "a.log"}] and answer["exit_code"] == 1
    assert exit_code(["redact", "b.log", "--check"]) == 0 and exit_code(["redact", "a.log", "--check", "--allow", "hf-token"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_stdin_is_a_file_too(tmp_path):
    done = runbook("redact", "-", "--public", cwd=tmp_path, stdin=f"{TOKEN} on 10.0.0.7\n")
    assert done.stdout == "***hf-token*** on ip-1\n" and done.returncode == 0


def test_a_run_becomes_a_folder_that_other_commands_take(own_state, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DECLARED", "correct horse battery")
    folder = write(own_state, hung(extra=f" {TOKEN} at /home/alice/x", log="correct horse battery on 10.0.0.7"))
    (folder / "evidence" / "up" / "stacks.txt").write_text(f"{TOKEN}\n10.0.0.7")
    (folder / "evidence" / "up" / "core.bin").write_bytes(b"\0" + TOKEN.encode())
    assert exit_code(["redact", RUN, "--public", "--out", "out"]) == 0
    err = capsys.readouterr().err
    assert "hf-token" in err and "DECLARED ×1" in err and "evidence/up/core.bin" in err and "event 4 (run_ended), reason" in err
    made_files = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert sorted(made_files) == ["events.jsonl", "evidence/up/stacks.txt", "junit.xml", "transcript.html", "transcript.md"]
    for name, text in made_files.items():
        assert not [secret for secret in (TOKEN, "correct horse", "10.0.0.7", "alice") if secret in text], name
    assert made_files["evidence/up/stacks.txt"] == "***hf-token***\nip-1" and "ip-1" in made_files["transcript.md"]
    assert exit_code(["redact", "out", "--check"]) == 0 and exit_code(["report", "out"]) == 0 and exit_code(["show", "out"]) == 0
    assert exit_code(["redact", RUN, "--out", "out"]) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no-such-run"], "no run `no-such-run`"),
        (["a.log", "--allow", "hf-tokens"], "did you mean `hf-token`"),
        (["a.log", "--json"], "name a file with --out"),
        (["a.log", "--out", "no/such/folder"], "No such file"),
    ],
)
def test_a_mistake_is_a_usage_error(tmp_path, capsys, args, said):
    tmp_path.joinpath("a.log").write_text("x")
    assert exit_code(["redact", *args]) == 2
    assert said in capsys.readouterr().err


def test_a_line_nested_deeper_than_any_event_is_redacted_as_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    deep = '{"event":' + "[" * 100_000 + '"ghp_' + "a1B2" * 9 + '"' + "]" * 100_000 + "}\n"
    (tmp_path / "deep.jsonl").write_text(deep)
    assert exit_code(["redact", "deep.jsonl", "--check", "--json"]) == 1
    assert sum(json.loads(capsys.readouterr().out)["masked"].values()) == 1
