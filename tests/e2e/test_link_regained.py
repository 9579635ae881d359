"""A link that goes silent for a while in the middle of a step: the run ends as it would have without that, and nothing ran twice."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cli import Outcome, start
from tests.steps.serving import SMALL_SERVER, free_port
from tests.support.processes import is_gone
from tests.support.relay import Relay
from tests.support.sshd import Sshd
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
QUICK = {"ServerAliveInterval": "1", "ServerAliveCountMax": "2", "ConnectTimeout": "3"}


class Box:
    """A host behind a relay that can swallow everything, and a run on it."""

    def __init__(self, sshd: Sshd, relay: Relay, folder: Path) -> None:
        self.sshd, self.relay, self.folder, self.state = sshd, relay, folder, folder / "host-state"
        sshd.write_client_config(port=relay.listen_port, **QUICK)
        sshd.known_hosts.write_text(sshd.known_hosts_line().replace(str(sshd.port), str(relay.listen_port)))

    def start(self, *steps: dict[str, Any], timeout: str = "60s") -> Any:
        """Start a run of these steps."""
        via = ["env", f"XDG_STATE_HOME={self.state}"]
        (self.folder / "hosts.yaml").write_text(yaml.safe_dump({"hosts": {"gpu": {"host": "box", "via": via, "python": sys.executable}}}))
        (self.folder / "book.yaml").write_text(
            json.dumps({"runbook": 1, "hosts": {"box": ["gpu"]}, "timeout": timeout, "steps": list(steps)})
        )
        env = {"RUNBOOK_SSH_CONFIG": str(self.sshd.client_config)}
        self.child = start("run", "book.yaml", "--json", "--out", self.folder / "out", state=self.folder / "runs", cwd=self.folder, env=env)
        return self.child

    def journal(self) -> str:
        """The journal so far."""
        path = self.folder / "out" / "events.jsonl"
        return path.read_text() if path.exists() else ""

    def silence(self) -> None:
        """Nothing passes until the run has noticed and has tried again; then all is as it was."""
        self.relay.black_hole()
        until(lambda: "link lost, trying again (" in self.journal(), 20)
        self.relay.heal()

    def end(self) -> Outcome:
        """The run's end."""
        out, err = self.child.communicate(timeout=90)
        return Outcome(self.child.returncode, out, err)

    def nothing_stays(self, outcome: Outcome) -> None:
        """On the host: no file, no helper."""
        assert outcome.json["left_behind"] == []
        until(lambda: not [path for path in self.state.rglob("*") if path.is_file()], 5)
        helpers = [json.loads(line)["facts"]["pid"] for line in self.journal().splitlines() if '"event":"host_connected"' in line]
        assert len(helpers) > 1
        for pid in helpers:
            until(lambda pid=pid: is_gone(pid), 5)


@pytest.fixture
def box(sshd: Sshd, relay_to: Callable[..., Relay], tmp_path: Path) -> Box:
    return Box(sshd, relay_to(sshd.host, sshd.port), tmp_path)


def test_a_long_command_goes_on_without_its_link_and_its_end_is_collected(box: Box) -> None:
    once = box.folder / "once"
    box.start({"id": "work", "run": f"echo ran >> {once}; echo begun; sleep 8; echo ended; exit 7"})
    until(once.exists, 20)
    box.silence()
    outcome = box.end()
    step = outcome.step("work")
    assert (outcome.code, step["verdict"]) == (1, "failed"), outcome.err
    assert "exit 7" in outcome.json["reason"]
    assert once.read_text() == "ran\n"
    [ended] = [event for event in outcome.events if getattr(event, "step", "") == "work" and hasattr(event, "result")]
    assert ended.result["stdout"] == "begun\nended\n"
    assert any(finding["code"] == "taken_over" for finding in outcome.json["findings"])
    box.nothing_stays(outcome)


def test_a_wait_for_a_server_goes_on_when_the_link_is_back(box: Box) -> None:
    port = free_port()
    launch = {"command": [sys.executable, str(SMALL_SERVER), "--port", str(port), "--load", "7"], "port": port, "profile": "sglang"}
    box.start({"id": "server", "launch": launch}, {"id": "up", "wait_healthy": {"server": "server", "timeout": "50s"}})
    until(lambda: '"step":"up"' in box.journal() and '"event":"wait_began"' in box.journal(), 20)
    box.silence()
    outcome = box.end()
    assert (outcome.code, outcome.json["verdict"]) == (0, "passed"), outcome.err
    box.nothing_stays(outcome)


def test_a_command_whose_helper_was_killed_is_undecided_and_not_run_again(box: Box) -> None:
    once = box.folder / "once"
    box.start({"id": "work", "run": f"echo ran >> {once}; sleep 300"})
    until(once.exists, 20)
    until(lambda: '"event":"host_connected"' in box.journal(), 5)
    helper = next(json.loads(line)["facts"]["pid"] for line in box.journal().splitlines() if '"event":"host_connected"' in line)
    os.kill(helper, signal.SIGKILL)
    outcome = box.end()
    assert (outcome.code, outcome.json["verdict"]) == (9, "undecided"), outcome.err
    assert "not run again" in outcome.json["reason"] and "were ended" in outcome.json["reason"]
    assert once.read_text() == "ran\n"
    box.nothing_stays(outcome)


def test_a_command_outlives_its_controller_and_resume_collects_its_end(box: Box) -> None:
    once = box.folder / "once"
    box.start({"id": "work", "run": f"echo ran >> {once}; sleep 4; echo ended; exit 7"})
    until(once.exists, 20)
    box.child.kill()
    box.child.communicate()
    env = {"RUNBOOK_SSH_CONFIG": str(box.sshd.client_config)}
    box.child = start("resume", box.folder / "out", "--json", state=box.folder / "runs", cwd=box.folder, env=env)
    outcome = box.end()
    assert (outcome.code, outcome.step("work")["verdict"]) == (1, "failed"), outcome.err
    assert "exit 7" in outcome.json["reason"] and once.read_text() == "ran\n"
    box.nothing_stays(outcome)


def test_a_link_that_does_not_come_back_in_time_is_unreachable_and_the_command_ends_at_its_own_limit(box: Box) -> None:
    pid = box.folder / "pid"
    box.start({"id": "work", "run": {"shell": f"echo $$ > {pid}; sleep 300"}, "timeout": "6s"})
    until(lambda: pid.exists() and pid.read_text(), 20)
    box.relay.black_hole()
    began = time.monotonic()
    outcome = box.end()
    assert (outcome.code, outcome.json["verdict"]) == (6, "unreachable"), outcome.err
    assert time.monotonic() - began < 45
    assert outcome.json["left_behind"], "what may still be there is named"
    until(lambda: is_gone(int(pid.read_text())), 15)


def test_a_post_whose_link_was_lost_is_not_sent_again_and_a_get_is(box: Box) -> None:
    port = free_port()
    slow = (
        "import http.server, time\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        print(self.command, flush=True); time.sleep(5); self.send_response(200); self.end_headers(); self.wfile.write(b'ok')\n"
        "    do_POST = do_GET\n"
        f"http.server.ThreadingHTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    )
    log = box.folder / "server.log"
    launch = {"command": [sys.executable, "-c", slow], "port": port, "log": str(log)}
    url = f"http://127.0.0.1:{port}"
    box.start(
        {"id": "server", "launch": launch},
        {"id": "read", "request": {"url": url, "get": "/", "timeout": "40s"}},
        {"id": "write", "request": {"url": url, "post": "/", "timeout": "40s"}},
    )
    until(lambda: log.exists() and "GET" in log.read_text(), 20)
    box.silence()
    until(lambda: "POST" in log.read_text(), 30)
    box.relay.black_hole()
    time.sleep(4)  # longer than a dead link is believed in
    box.relay.heal()
    outcome = box.end()
    assert outcome.step("read")["verdict"] == "passed", outcome.err
    assert (outcome.code, outcome.json["verdict"]) == (6, "unreachable"), outcome.err
    assert "not sent again" in outcome.json["reason"]
