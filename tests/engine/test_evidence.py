"""Evidence before cleanup: the bundle of a watched server is taken before anything may touch it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runbook.hosts.base import Cancelled
from runbook.model.event import ActionStarted, EvidenceSaved, Found, StepEnded, StepStarted
from runbook.render.lines import Lines
from tests.engine.real import run_here

DEADLOCK = """
import threading
first, second = threading.Lock(), threading.Lock()
def other():
    with second:
        both.wait()
        with first:
            pass
def take_both():
    with first:
        both.wait()
        with second:
            pass
both = threading.Barrier(2)
threading.Thread(target=other, daemon=True).start()
print("loading", flush=True)
take_both()
"""


def book(program: str, steps: list[dict[str, Any]], **top: Any) -> str:
    """A playbook that launches a Python program as `server` (JSON is YAML)."""
    launch = {"id": "server", "launch": {"command": [sys.executable, "-c", program], "settle": "300ms"}}
    return json.dumps({"runbook": 1, "name": "t", "hosts": {"box": "local"}, "steps": [launch, *steps], **top})


def evidence(folder: Path, step: str) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in (folder / "evidence" / step).glob("*")}


def index(files: dict[str, str]) -> dict[str, str]:
    return {row["item"]: row["status"] for row in json.loads(files["index.json"])["items"]}


@pytest.mark.slow
def test_a_hung_servers_stacks_are_taken_before_rescue_kills_it(tmp_path: Path) -> None:
    wait = {"id": "up", "wait_healthy": {"server": "server", "timeout": "2s"}}
    text = book(DEADLOCK, [{"block": [wait], "rescue": [{"id": "end", "kill": {"step": "server"}}]}])
    text = text.replace('"settle": "300ms"', '"settle": "300ms", "port": 9')
    ended, events = run_here(text, tmp_path)
    files = evidence(tmp_path, "up")
    assert ended.verdict == "passed"
    assert "take_both (<string>:12)" in files["stacks.txt"] and "other (<string>:7)" in files["stacks.txt"]
    assert "loading" in files["log.txt"] and index(files)["stacks"] == "taken"
    order = [event for event in events if isinstance(event, (EvidenceSaved, StepStarted, StepEnded))]
    last_saved = max(at for at, event in enumerate(order) if isinstance(event, EvidenceSaved) and event.step == "up")
    assert last_saved < next(at for at, event in enumerate(order) if isinstance(event, StepStarted) and event.step == "end")
    about = {Path(event.file).name: event.about for event in events if isinstance(event, EvidenceSaved) and event.step == "up"}
    assert about["stacks.txt"] == "evidence of `server`: stacks" and about["index.json"].startswith("evidence bundle: ")


@pytest.mark.slow
def test_a_server_that_crashed_at_once_leaves_its_log_and_is_not_asked_for_stacks(tmp_path: Path) -> None:
    ended, events = run_here(book("print('no such model'); raise SystemExit(3)", []), tmp_path)
    files = evidence(tmp_path, "server")
    assert ended.verdict == "crashed" and "no such model" in files["log.txt"] and '"code": 3' in files["processes.txt"]
    assert index(files)["stacks"] == index(files)["environment"] == "absent" and "stacks.txt" not in files
    lines = [line for event in events for line in Lines().lines(event)]
    assert any(line.startswith("  server: evidence taken: ") and line.endswith(" (evidence/server/index.json)") for line in lines)


@pytest.mark.slow
def test_collect_off_takes_nothing(tmp_path: Path) -> None:
    ended, events = run_here(book("raise SystemExit(3)", [], collect="off"), tmp_path)
    assert ended.verdict == "crashed"
    assert not (tmp_path / "evidence" / "server" / "index.json").exists()
    assert not any(isinstance(event, ActionStarted) and event.action == "collect" for event in events)


@pytest.mark.slow
def test_a_run_whose_steps_pass_takes_none(tmp_path: Path) -> None:
    ended, events = run_here(
        book("import time; print('here', flush=True); time.sleep(60)", [{"grep": {"log": "server", "pattern": "here", "wait": "5s"}}]),
        tmp_path,
    )
    assert ended.verdict == "passed"
    assert not any(isinstance(event, ActionStarted) and event.action == "collect" for event in events)


@pytest.mark.slow
def test_a_grep_that_waits_on_a_dying_server_leaves_evidence_too(tmp_path: Path) -> None:
    program = "import time; print('started', flush=True); time.sleep(0.8); raise SystemExit('bad model')"
    ended, events = run_here(book(program, [{"id": "seen", "grep": {"log": "server", "pattern": "never", "wait": "20s"}}]), tmp_path)
    assert ended.verdict == "crashed" and "bad model" in evidence(tmp_path, "seen")["log.txt"]
    assert sum(isinstance(event, ActionStarted) and event.action == "collect" for event in events) == 1


@pytest.mark.slow
def test_a_bug_in_the_taking_never_costs_the_run_its_cleanup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **more: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("runbook.engine.evidence.take", broken)
    ended, events = run_here(book("raise SystemExit(3)", []), tmp_path)
    assert (ended.verdict, ended.cleanup) == ("crashed", "passed")
    (finding,) = [event.finding for event in events if isinstance(event, Found)]
    assert finding.code == "no_evidence" and "planted" in finding.text and (tmp_path / "evidence" / "server" / "traceback.txt").exists()


@pytest.mark.slow
def test_an_interrupt_while_evidence_is_taken_ends_it_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **more: Any) -> Any:
        raise Cancelled("interrupted")

    monkeypatch.setattr("runbook.engine.evidence.take", interrupted)
    ended, events = run_here(book("raise SystemExit(3)", []), tmp_path)
    assert (ended.verdict, ended.cleanup) == ("crashed", "passed") and not any(isinstance(event, Found) for event in events)
