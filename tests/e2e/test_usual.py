"""A second start of the same command is shown beside the first: while it runs, in its transcript, and when it is judged again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runbook.engine.replay import judge_again, waits
from runbook.model.event import Moved, WaitBegan
from tests.e2e.cli import Outcome, start
from tests.steps.serving import SMALL_SERVER, free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def book(folder: Path) -> Path:
    """A launch and a wait; the port is a variable, so each run has another. The server is warm when the file is there."""
    command = [sys.executable, str(SMALL_SERVER), "--port", "${{ vars.port }}", "--load", "0.1", "--warm-until", str(folder / "warm")]
    steps = [
        {"id": "server", "launch": {"command": command, "profile": "sglang"}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "60s"}},
    ]
    path = folder / "start.yaml"
    path.write_text(json.dumps({"runbook": 1, "name": "start", "hosts": {"box": "local"}, "vars": {"port": 1}, "steps": steps}))
    return path


def run(folder: Path) -> Outcome:
    """One run, which becomes ready only after it was seen not to be."""
    (folder / "warm").unlink(missing_ok=True)
    state = folder / "state"
    child = start("run", book(folder), "-e", f"port={free_port()}", "--json", state=state)
    until(lambda: any(" 503" in log.read_text() for log in state.rglob("launches/server.log")), 60)
    (folder / "warm").touch()
    out, err = child.communicate(timeout=90)
    return Outcome(child.returncode, out, err)


def test_the_second_start_says_what_the_first_took(tmp_path):
    first, second = (run(tmp_path) for _ in range(2))
    assert (first.code, second.code) == (0, 0), second.err
    asked = [next(event for event in one.events if isinstance(event, WaitBegan)).question.usual for one in (first, second)]
    assert asked[0] is None and asked[1] is not None and asked[1].ready.runs == 1
    assert "usually" not in first.step("up")["reason"] and "usually" in second.step("up")["reason"]
    assert any("usually" in event.text for event in second.events if isinstance(event, Moved))
    assert "(1 run)" in Path(second.json["transcript"]["markdown"]).read_text()
    (wait,) = [wait for wait in waits(second.events) if wait.step == "up"]
    assert judge_again(wait).same is True and wait.question.usual == asked[1]
