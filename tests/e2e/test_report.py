"""Reports of real runs: written at the end of each, and made again from the journal alone."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.cli import STORY, runbook

pytestmark = pytest.mark.e2e
BOOK = """\
runbook: 1
name: Look
hosts: {box: local}
steps:
  - id: say
    run:
      shell: |
        echo "::error::owned"
        printf '\\033[2J ```\\n</details> @all\\n'
        exit ${{ vars.code }}
vars: {code: 0}
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A playbook whose output is hostile."""
    path = tmp_path / "look.yaml"
    path.write_text(BOOK)
    return path


def test_a_run_in_github_actions_leaves_junit_a_job_summary_and_groups(book, tmp_path):
    summary = tmp_path / "summary.md"
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "PYTHONIOENCODING": "ascii"}
    outcome = runbook("run", book, "-e", "code=3", "--json", state=tmp_path / "state", env=env)
    assert outcome.code == 1, outcome.err
    folder = Path(outcome.json["transcript"]["dir"])
    suite = ElementTree.fromstring((folder / "junit.xml").read_bytes())[0]
    assert suite.get("failures") == "1" and suite.find("testcase/failure") is not None
    assert summary.read_text() == (folder / "transcript.md").read_text()
    commands = [line.split(" ")[0] for line in outcome.err.splitlines() if line.startswith("::")]
    assert commands == ["::group::>", "::endgroup::", "::error"], outcome.err
    assert outcome.err.isascii()


def test_a_job_summary_that_cannot_be_written_is_a_note_and_changes_no_verdict(book, tmp_path):
    outcome = runbook("run", book, "--json", state=tmp_path / "state", env={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "file")})
    assert outcome.code == 0 and outcome.json["verdict"] == "passed"
    assert "note: the job summary" in outcome.err


def test_every_format_comes_from_the_journal_alone(book, tmp_path):
    state = tmp_path / "state"
    outcome = runbook("run", book, "-e", "code=3", "--json", state=state)
    elsewhere = tmp_path / "attached.jsonl"
    elsewhere.write_bytes((Path(outcome.json["transcript"]["dir"]) / "events.jsonl").read_bytes())
    for form in ("md", "html", "junit", "json", "trace", "zip"):
        target = tmp_path / f"out.{form}"
        made = runbook("report", elsewhere, "--format", form, "-o", target, state=tmp_path / "other")
        assert made.code == 0 and target.stat().st_size > 200, made.err
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "failed"
    assert json.loads((tmp_path / "out.trace").read_text())["otherData"]["verdict"] == "failed"
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert "transcript.html" in archive.namelist()


def test_yesterdays_good_run_tells_what_is_different_today(lab, port):
    """The founding story: one flag, and the width that the draft sees."""
    good = lab.runbook("run", STORY, "-e", f"port={port}", "--json")
    bad = lab.runbook("run", STORY, "-e", f"port={port}", "-e", "algorithm=EAGLE", "--json")
    assert (good.code, bad.code) == (0, 1), good.err + bad.err
    result = lab.runbook("compare", bad.json["run"], "--baseline", "1", "--json")
    assert result.code == 1
    answer = json.loads(result.out)
    rows = {(section["name"], row["what"]): (row["a"], row["b"]) for section in answer["sections"] for row in section["rows"]}
    assert rows["verdict", "verdict"] == ("passed", "failed")
    assert rows["launch", "server --speculative-algorithm"] == ("EAGLE3", "EAGLE")
    assert rows["probes", "seen hidden width"] == ("192, 64", "64")
    before, now = map(float, rows["metrics", "chat accept_length"])
    assert before > 4 > 1.5 > now
    assert "environment" in answer["equal"]
    same = lab.runbook("compare", bad.json["run"], bad.json["run"])
    assert same.code == 0 and "no difference" in same.out
