"""What programs read: `run --json`, `show --json`, `runs --json`, the answer for a playbook that did not run, the journal.

Keys are public. The published schemas are committed files; what real commands print must fit them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from runbook.cli.main import exit_code
from runbook.model.event import AnyEvent
from tests.support.schemas import SCHEMAS, validator

KEYS = [
    "run",
    "playbook",
    "state",
    "verdict",
    "kind",
    "exit_code",
    "reason",
    "steps",
    "findings",
    "cleanup",
    "left_behind",
    "next",
    "transcript",
]
STEP = {"id", "type", "host", "status", "verdict", "seconds"}
STEP_MORE = {"kind", "reason", "item", "ignored", "attempt", "part"}
PROBLEM = ["code", "severity", "file", "line", "col", "summary", "hint"]
BOOK = """\
runbook: 1
name: Every kind of step row
hosts: {box: local}
steps:
  - id: many
    loop: [a, b]
    run: {argv: [echo, '${{ item }}']}
  - id: again
    run: test -e found || { touch found; exit 1; }
    retry: {for: 5s, every: 10ms}
  - id: skipped
    when: 'false'
    run: 'true'
  - id: loose
    ignore_errors: true
    run: exit 3
  - block: [{id: broken, run: exit 4}]
    rescue: [{id: saved, run: 'true'}]
  - id: last
    assert: steps.many.items[1].stdout == 'c'
always:
  - id: sweep
    run: rm -f found
"""


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    """Exit code and the one object of a command line."""
    code = exit_code(list(argv))
    out = capsys.readouterr().out
    assert out.count("\n") == 1, "one object on one line, and nothing else"
    return code, json.loads(out)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a playbook."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "book.yaml").write_text(BOOK.replace("found", str(tmp_path / "found")))
    return tmp_path


@pytest.mark.slow
def test_a_run_prints_one_object_with_the_public_keys(here, capsys):
    code, told = answer(capsys, "run", "book.yaml", "--json")
    assert list(told) == KEYS and code == told["exit_code"] == 1
    validator("run").validate(told)
    assert (told["state"], told["verdict"], told["kind"], told["cleanup"]) == ("ended", "failed", None, {"status": "passed"})
    assert list(told["transcript"]) == ["dir", "events", "markdown", "html"]
    assert told["transcript"]["html"] is None or Path(told["transcript"]["html"]).exists()
    assert all(Path(told["transcript"][name]).exists() for name in ("dir", "events", "markdown"))
    assert all(STEP <= set(row) <= STEP | STEP_MORE for row in told["steps"])
    rows = [(row["id"], row.get("item"), row.get("attempt"), row["status"], row.get("part"), row.get("ignored")) for row in told["steps"]]
    assert rows == [
        ("many", 0, None, "passed", None, None),
        ("many", 1, None, "passed", None, None),
        ("again", None, None, "failed", None, None),
        ("again", None, 2, "passed", None, None),
        ("skipped", None, None, "skipped", None, None),
        ("loose", None, None, "failed", None, True),
        ("broken", None, None, "failed", None, None),
        ("saved", None, None, "passed", "rescue", None),
        ("last", None, None, "failed", None, None),
        ("sweep", None, None, "passed", "always", None),
    ]
    assert [found["code"] for found in told["findings"]] == ["rescued"]


def test_show_prints_the_same_object(here, capsys):
    _, told = answer(capsys, "run", "book.yaml", "--json")
    code, shown = answer(capsys, "show", told["run"], "--json")
    assert (code, shown) == (0, {**told, "stale": None})
    validator("run").validate(shown)


@pytest.mark.slow
def test_show_of_a_run_in_progress_says_where_it_is(here, capsys):
    """Its journal up to the start of a step; the controller is this very process."""
    _, told = answer(capsys, "run", "book.yaml", "--json")
    journal = Path(told["transcript"]["events"])
    lines = journal.read_text().splitlines(keepends=True)
    cut = next(number for number, line in enumerate(lines) if '"event":"step_started"' in line and '"step":"again"' in line)
    journal.write_text("".join(lines[: cut + 1]))
    _, shown = answer(capsys, "show", told["run"], "--json")
    assert list(shown) == [*KEYS, "step", "phase", "moved", "stale"]
    assert (shown["state"], shown["verdict"], shown["exit_code"], shown["step"], shown["stale"]) == ("running", None, None, "again", None)
    validator("run").validate(shown)


@pytest.mark.parametrize("argv", [["validate"], ["run"]])
def test_what_did_not_run_says_why_in_one_form(argv, here, capsys):
    (here / "bad.yaml").write_text("runbook: 1\nhosts: {box: local}\nsteps:\n  - rum: x\n  - run: x\n    timeout: 3\n")
    code, told = answer(capsys, *argv, "bad.yaml", "--json")
    assert code == 2 and list(told) == ["verdict", "diagnostics"] and told["verdict"] == "invalid"
    assert all(list(problem) == PROBLEM for problem in told["diagnostics"]) and len(told["diagnostics"]) == 2
    validator("run").validate(told)


def test_a_usage_error_has_the_same_form(here, capsys):
    code, told = answer(capsys, "run", "book.yaml", "--json", "--nope")
    assert code == 2 and [(one["code"], one["file"]) for one in told["diagnostics"]] == [("usage", None)]
    validator("run").validate(told)


def test_a_valid_playbook_has_the_same_form(here, capsys):
    code, told = answer(capsys, "validate", "book.yaml", "--json")
    assert (code, told) == (0, {"verdict": "passed", "diagnostics": []})
    validator("run").validate(told)


def test_the_list_of_runs_has_its_keys(here, capsys):
    _, told = answer(capsys, "run", "book.yaml", "--json")
    code, rows = answer(capsys, "runs", "--json")
    assert code == 0 and [list(row) for row in rows] == [["run", "started", "state", "stale", "verdict", "seconds", "name"]]
    row = rows[0]
    assert (row["run"], row["state"], row["verdict"], row["name"]) == (told["run"], "ended", "failed", "Every kind of step row")
    assert isinstance(row["started"], float) and isinstance(row["seconds"], float)


def test_every_line_of_a_journal_fits_the_published_schema(here, capsys):
    _, told = answer(capsys, "run", "book.yaml", "--json")
    lines = [json.loads(line) for line in Path(told["transcript"]["events"]).read_text().splitlines()]
    for line in lines:
        validator("events").validate(line)
    assert [line.get("n") for line in lines] == list(range(len(lines)))
    assert {"run_started", "host_connected", "step_started", "step_ended", "finding", "main_ended", "run_ended"} <= {
        line["event"] for line in lines
    }


def test_every_event_has_its_place_in_the_schema_and_nothing_else_has():
    schema = json.loads((SCHEMAS / "events.schema.json").read_text())
    tags = {msgspec.inspect.type_info(event).tag for event in get_args(AnyEvent)}  # type: ignore[attr-defined]
    refs = [schema["$defs"][form["$ref"].rpartition("/")[2]]["properties"]["event"]["enum"] for form in schema["anyOf"]]
    assert sorted(tag for (tag,) in refs) == sorted(tags)
    assert not validator("events").is_valid({"event": "step_began", "t": 0.0, "n": 0})
    assert not validator("events").is_valid({"event": "step_started", "t": 0.0, "n": 0})


@pytest.mark.parametrize(
    "change",
    [{"verdict": "timeout"}, {"exit_code": 42}, {"state": "lost"}, {"cleanup": "passed"}, {"more": 1}, {"steps": [{"id": "a"}]}],
    ids=str,
)
def test_the_schema_of_a_run_refuses_what_no_run_may_say(change, here, capsys):
    _, told = answer(capsys, "run", "book.yaml", "--json")
    assert validator("run").is_valid(told)
    assert not validator("run").is_valid({**told, **change})
