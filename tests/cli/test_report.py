"""report: every format of every journal that can be read at all, and what is missing is said."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runbook.cli.main import exit_code
from runbook.cli.report import append_step_summary
from runbook.engine.recording import load_recording
from tests.cli.recorded import events, record, recorded

FORMATS = ("md", "html", "junit", "json", "trace", "zip")


def write(run: Path | str, form: str, folder: Path) -> bytes:
    target = folder / f"out.{form}"
    assert exit_code(["report", str(run), "--format", form, "-o", str(target)]) == 0
    return target.read_bytes()


def opens(form: str, data: bytes) -> str:
    """The text of a format, after the reader that belongs to it."""
    if form == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            return "\n".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    text = data.decode()
    if form in ("json", "trace"):
        json.loads(text)
    if form == "junit":
        ElementTree.fromstring(data)
    return text


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_tells_the_verdict(form, own_state, tmp_path):
    recorded(own_state, verdict="hung")
    assert "hung" in opens(form, write("last", form, tmp_path))


@pytest.mark.parametrize("form", FORMATS)
def test_a_torn_journal_of_a_newer_version_without_its_evidence_still_gives_every_format(form, tmp_path, capsys):
    folder = record(tmp_path / "from-elsewhere", events(verdict="hung"), evidence=False)
    journal = folder / "events.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[3:3] = [b'{"event":"quantum_leap","t":1.5,"n":9,"what":{"x":[1]}}', b"\xff\xfe not json"]
    journal.write_bytes(b"\n".join(lines).replace(b'"rule":"stopped"', b'"rule":"stopped","future":[1]') + b'{"event":"step_en')
    text = opens(form, write(journal, form, tmp_path))
    assert "hung" in text
    said = capsys.readouterr().err
    for part in ("quantum_leap", "line 4", "cannot be read: line 5", "torn: 17 bytes", "evidence/up/server.log"):
        assert part in said
    for code in ("newer_events", "unreadable_events", "torn_journal", "evidence_missing"):
        assert code in text, code


def test_a_journal_that_lost_its_last_line_break_has_lost_no_event(tmp_path):
    folder = record(tmp_path / "r", events())
    (folder / "events.jsonl").write_bytes((folder / "events.jsonl").read_bytes()[:-1])
    assert load_recording(folder) == events()


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"a": 1}\n', b"[" * 100_000 + b"\n", b"\x00\xff" * 50])
def test_a_file_that_is_no_journal_is_a_usage_error(content, tmp_path, capsys):
    (tmp_path / "x.jsonl").write_bytes(content)
    assert exit_code(["report", str(tmp_path / "x.jsonl")]) == 2
    assert "no line of it is an event" in capsys.readouterr().err


def test_a_made_up_journal_cannot_name_a_file_outside_its_folder(tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    folder = record(tmp_path / "r", events())
    (folder / "evidence" / "link").symlink_to(secret)
    journal = folder / "events.jsonl"
    text = journal.read_text()
    for name in (str(secret), "evidence/../../secret", "evidence/link", "events.jsonl"):
        journal.write_text(text.replace("evidence/up/server.log", name))
        assert "hunter2" not in opens("zip", write(folder, "zip", tmp_path))
        assert "evidence_missing" in write(folder, "md", tmp_path).decode().replace("\\", "")


def test_the_zip_holds_every_format_and_the_evidence_and_is_the_same_each_time(tmp_path):
    folder = record(tmp_path / "r", events())
    data = write(folder, "zip", tmp_path)
    assert data == write(folder, "zip", tmp_path)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert set(archive.namelist()) == {
            "contents.txt",
            "transcript.md",
            "transcript.html",
            "junit.xml",
            "summary.json",
            "trace.json",
            "events.jsonl",
            "evidence/up/server.log",
        }
        assert archive.read("evidence/up/server.log") == b"log\n"
        assert archive.read("events.jsonl") == (folder / "events.jsonl").read_bytes()


def test_markdown_keeps_the_asked_budget_and_goes_to_stdout_by_default(own_state, capsysbinary):
    recorded(own_state, verdict="hung", reason="x" * 9000)
    assert exit_code(["report", "last", "--budget", "2kB"]) == 0
    out = capsysbinary.readouterr().out
    assert len(out) <= 2000 and out.startswith(b"# EAGLE-3 check: hung")
    assert exit_code(["report", "last", "--for", "jira"]) == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--budget", "100B"], "give 2000B or more"),
        (["--budget", "9"], "has no unit"),
        (["--budget", "9kB", "--for", "jira"], "exclude each other"),
        (["--budget", "9kB", "--format", "html"], "is for Markdown"),
        (["-o", "/nonexistent/x"], "cannot write"),
        (["--format", "pdf"], "'pdf' is not one of"),
        (["--md"], "Did you mean `--format md`?"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_to_do(argv, said, own_state, capsys):
    recorded(own_state)
    assert exit_code(["report", "last", *argv]) == 2
    assert said in capsys.readouterr().err


def test_the_job_summary_gets_the_transcript_below_what_is_there(tmp_path):
    path = tmp_path / "summary"
    path.write_text("before\n")
    assert append_step_summary(events(verdict="hung"), {"GITHUB_STEP_SUMMARY": str(path)}) is None
    text = path.read_text()
    assert text.startswith("before\n\n# EAGLE-3 check: hung") and len(text) < 2**20


def test_the_job_summary_is_masked_once_more(tmp_path):
    path = tmp_path / "summary"
    made = events(verdict="hung", reason="token hf_*secret* leaked", secrets=["HF_TOKEN"])
    append_step_summary(made, {"GITHUB_STEP_SUMMARY": str(path), "HF_TOKEN": "hf_*secret*"})
    assert "secret" not in path.read_text() and "HF" in path.read_text()


def test_a_full_or_missing_job_summary_is_a_note(tmp_path):
    path = tmp_path / "summary"
    path.write_bytes(b"x" * (2**20 - 100))
    assert "is full" in (append_step_summary(events(), {"GITHUB_STEP_SUMMARY": str(path)}) or "")
    assert "cannot be written" in (append_step_summary(events(), {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "x")}) or "")
