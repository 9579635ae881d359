"""A run of several files, on this machine: a server that one file launches and another waits for; and what is left of it without the files."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.e2e.cli import runbook
from tests.steps.serving import SMALL_SERVER, free_port
from tests.support.processes import is_gone
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

LAUNCH = {
    "runbook": 1,
    "hosts": {"gpu": "local"},
    "inputs": {"port": {"type": "integer"}, "load": {"type": "integer", "default": 0}},
    "outputs": {"pid": "${{ steps.server.pid }}"},
    "defaults": {"launch": {"profile": "sglang", "settle": "100ms"}},
    "steps": [
        {
            "id": "server",
            "launch": {
                "command": [sys.executable, str(SMALL_SERVER), "--port", "${{ vars.port }}", "--load", "${{ vars.load }}"],
                "port": "${{ vars.port }}",
            },
        }
    ],
}
WAIT = {
    "runbook": 1,
    "hosts": {"gpu": "local"},
    "inputs": {"server": {"type": "step", "help": "the launch to wait for"}, "box": {"type": "duration"}},
    "outputs": {"after": "${{ steps.up.ready_after }}"},
    "steps": [{"id": "up", "wait_healthy": {"server": "${{ vars.server }}", "timeout": "${{ vars.box }}"}}],
}


@pytest.fixture
def book(tmp_path):
    """A playbook that includes both, and where its runs lie."""
    port = free_port()
    (tmp_path / "lib").mkdir()
    for name, content in (("start", LAUNCH), ("wait", WAIT)):
        (tmp_path / "lib" / f"{name}.yaml").write_text(json.dumps(content))
    top = {
        "runbook": 1,
        "hosts": {"box": "local"},
        "inputs": {"load": {"type": "integer", "default": 0}},
        "steps": [
            {"id": "start", "include": {"playbook": "start", "with": {"port": port, "load": "${{ vars.load }}"}}},
            {"id": "wait", "include": {"playbook": "wait", "with": {"server": "start.server", "box": "4s"}}},
            {"request": {"server": "start.server", "get": "/health"}},
            {"assert": ["steps.wait.after < 4", "steps.start.pid > 1"]},
        ],
    }
    path = tmp_path / "book.yaml"
    path.write_text(json.dumps(top))
    return path


def test_a_server_that_another_file_launched_is_waited_for_and_asked(book, tmp_path):
    done = runbook("run", book, "--json", state=tmp_path / "state", cwd=tmp_path)
    assert done.json["verdict"] == "passed", done.err
    assert [row["id"] for row in done.json["steps"]] == ["start.server", "wait.up", "s03_request", "s04_assert"]
    assert (tmp_path / "state/runbook/runs" / done.json["run"] / "evidence/start.server/server.log").is_file()


def test_a_suspended_run_is_cancelled_without_its_files(book, tmp_path):
    state = tmp_path / "state"
    held = runbook("run", book, "--json", "-e", "load=120", state=state, cwd=tmp_path)
    assert held.json["state"] == "suspended" and held.json["verdict"] in ("slow", "undecided"), held.err
    launched = next(event for event in held.events if getattr(event, "kind", "") == "launch" and hasattr(event, "data"))
    pid = launched.data["state"]["pid"]
    shutil.rmtree(tmp_path / "lib")
    book.unlink()
    ended = runbook("cancel", held.json["run"], "--json", state=state, cwd=tmp_path)
    assert ended.code == 0 and ended.json["cleanup"] == {"status": "passed"}, ended.err
    until(lambda: is_gone(pid), 10)
