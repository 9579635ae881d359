"""A secret's value stays where it is needed: in no file of the run, on no stream, in no command line.

The server and the scripts of this test do their best to repeat it, in every form.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from tests.e2e.cli import Outcome, runbook, start
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
DECLARED = "d3cl/ared+value=%1 \"quoted\" 'x'"
GIVEN = "hf_Giv3nOnTheCommandLine/0123456789"
BABBLE = """
import base64, json, os, urllib.parse as u
for name in ("DECLARED", "GIVEN"):
    v = os.environ[name]
    print(v, repr(v), json.dumps(v), u.quote(v), u.quote(v, safe=""), u.quote_plus(v), sep="\\n", flush=True)
    print(base64.b64encode(v.encode()).decode(), base64.b64encode(("user:" + v).encode()).decode(), flush=True)
"""
SERVER = (
    BABBLE
    + """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        said = json.dumps({"auth": self.headers["authorization"], "body": body.decode(), "env": os.environ["DECLARED"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.send_header("x-echo", u.quote(self.headers["authorization"]))
        self.end_headers()
        self.wfile.write(said)
        print("asked by", self.headers["authorization"], flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
)


def every_form(value: str) -> list[str]:
    """What must be nowhere; of base64 the part that does not depend on what stands around it."""
    shifted = base64.b64encode(b"user:" + value.encode()).decode()[8:-6]
    plain = [value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value), quote(value, safe=""), quote_plus(value)]
    return [*plain, base64.b64encode(value.encode()).decode().rstrip("="), shifted]


FORMS = [form for value in (DECLARED, GIVEN) for form in every_form(value)]


def given_away(text: str) -> list[str]:
    """Forms that a text holds."""
    return [form for form in FORMS if form in text]


class CommandLines:
    """Reads every command line on this machine all the time, but those of the test and of the controller, which was given one."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.spared = {os.getpid()}
        self.seen = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(0.02):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
                except OSError:
                    continue  # it has ended
                self.seen += 1
                if int(pid) not in self.spared and given_away(words):
                    self.found.add(words)


class Teller:
    """Runs playbooks with the two secrets."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.state = folder / "state"

    def book(self, *steps: dict[str, Any], **top: Any) -> Path:
        """A playbook that declares both."""
        vars = {"hf_token": "", "port": self.port}
        whole = {"runbook": 1, "name": "Secrets", "hosts": {"gpu": "local"}, "secrets": ["RB_DECLARED"], "vars": vars, "steps": list(steps)}
        path = self.folder / "book.yaml"
        path.write_text(json.dumps({**whole, **top}))
        return path

    def run(self, *steps: dict[str, Any], **top: Any) -> Outcome:
        """Run it, with every command line on the machine watched."""
        command = ["run", self.book(*steps, **top), "-e", f"hf_token={GIVEN}", "--json"]
        child = start(*command, state=self.state, cwd=self.folder, env={"RB_DECLARED": DECLARED})
        with CommandLines() as lines:
            lines.spared.add(child.pid)
            out, err = child.communicate(timeout=60)
        assert lines.seen and lines.found == set()
        return Outcome(child.returncode, out, err)

    def nothing_given_away(self, outcome: Outcome) -> str:
        """Streams and files of the run, evidence too; answers all their text."""
        assert given_away(outcome.out) == [] and given_away(outcome.err) == []
        folder = Path(outcome.json["transcript"]["dir"])
        texts = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
        assert {path.name: given_away(text) for path, text in texts.items() if given_away(text)} == {}
        return "\n".join(texts.values()) + outcome.out + outcome.err


ENV = {"DECLARED": "${{ secrets.RB_DECLARED }}", "GIVEN": "${{ vars.hf_token }}"}


@pytest.fixture
def teller(tmp_path: Path, port: int) -> Iterator[Teller]:
    """Afterwards no process has either of them in its environment."""
    yield Teller(tmp_path, port)
    marks = [b"RUNBOOK_RUN=", DECLARED.encode()]
    left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if all(mark in _environ(pid) for mark in marks)]
    assert left == []


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_run_steps_may_say_it_and_nobody_reads_it(teller):
    """On stdout and stderr, in reasons of failures, in parsed output, in long output, while it runs, and cut by an end."""
    babble = [sys.executable, "-c", BABBLE]
    outcome = teller.run(
        {"id": "argv", "run": {"argv": babble, "env": ENV, "parse": "lines"}},
        {"id": "fails", "run": {"shell": 'echo "no: $DECLARED" >&2; exit 3', "env": ENV}, "ignore_errors": True},
        {"id": "script", "run": {"shell": 'cat /proc/$$/cmdline; echo; printf "%s\\n" "$DECLARED" "$GIVEN"', "env": ENV, "live": True}},
        {
            "id": "json",
            "run": {"argv": [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"], "env": ENV, "parse": "json"},
        },
        {"id": "long", "run": {"shell": 'n=0; while [ $n -lt 200 ]; do echo "$n $DECLARED $GIVEN"; n=$((n+1)); done', "env": ENV}},
        {"id": "far", "run": {"shell": 'printf "%0100d%s\\n" 0 "$GIVEN"', "env": ENV}},
        {"id": "wrong", "assert": "steps.argv.out[0] == vars.hf_token", "ignore_errors": True},
    )
    assert outcome.code == 0, outcome.err
    text = teller.nothing_given_away(outcome)
    assert "no: ***RB_DECLARED***" in text and "***hf_token***" in text, "it was said, and masked"
    assert not re.search(r"hf_Giv3nOn", text), "no half of it either"


def test_a_server_and_its_answers_may_say_it_and_nobody_reads_it(teller):
    """Expressions see results as the journal has them: masked."""
    outcome = teller.run(
        {"id": "server", "launch": {"command": [sys.executable, "-c", SERVER, "${{ vars.port }}"], "port": teller.port, "env": ENV}},
        {
            "id": "ask",
            "retry": {"for": "10s", "every": "100ms"},
            "request": {
                "url": f"http://127.0.0.1:{teller.port}",
                "post": "/",
                "headers": {"Authorization": "Bearer ${{ secrets.RB_DECLARED }}"},
                "json": {"token": "${{ vars.hf_token }}"},
            },
        },
        {"id": "look", "grep": {"log": "server", "pattern": "(?P<who>asked by .*)", "wait": "5s"}},
        {"id": "saw", "assert": "steps.ask.json.env == '***RB_DECLARED***' and 'asked by Bearer' in steps.look.matches[0].who"},
    )
    assert outcome.code == 0, outcome.err
    text = teller.nothing_given_away(outcome)
    assert "asked by Bearer ***RB_DECLARED***" in text
    log = (Path(outcome.json["transcript"]["dir"]) / "evidence/server/server.log").read_text()
    assert "***hf_token***" in log


def test_a_cancel_without_the_secrets_brings_no_log_that_holds_them(teller):
    """They are never stored, so a later process knows them only if it is told again."""
    command = [sys.executable, "-c", SERVER, str(teller.port)]
    book = teller.book(
        {"id": "server", "launch": {"command": command, "env": ENV, "port": teller.port}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "1s"}},
    )
    env = {"RB_DECLARED": DECLARED}
    outcome = runbook("run", book, "-e", f"hf_token={GIVEN}", "--json", state=teller.state, cwd=teller.folder, env=env)
    assert outcome.json["state"] == "suspended", outcome.err
    cancelled = runbook("cancel", outcome.json["run"], "--json", state=teller.state, cwd=teller.folder)
    assert cancelled.code == 0, cancelled.err
    assert "RB_DECLARED is not set now" in cancelled.err and cancelled.json["left_behind"] == []
    assert [found["code"] for found in cancelled.json["findings"]].count("log_not_fetched") == 1
    teller.nothing_given_away(cancelled)
    until(lambda: not (teller.state / "runbook-host").exists(), 5)
