"""show, and what every command owes to its terminal: any encoding, any width, no colour where none is wanted."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from runbook.cli.main import exit_code
from tests.cli.recorded import recorded
from tests.cli.running import ROOT


@pytest.fixture
def run(own_state):
    """A hung run whose reason no narrow encoding can hold."""
    return recorded(own_state, verdict="hung", reason="rank 2 – stands → still é \U0001f600")


def test_show_tells_what_happened_and_where_the_files_are(run, capsys):
    assert exit_code(["show"]) == 0
    out = capsys.readouterr().out
    assert "FAILED hung up [box] 4s" in out and "HUNG (exit 3)" in out and f"folder: {run}" in out


def test_explain_tells_the_rule_from_its_own_description(run, capsys):
    assert exit_code(["show", "--explain"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "state T in two samples" in out and "proven" in out and "docs/reference/rules.md#stopped" in out


def test_a_torn_or_newer_journal_is_shown_with_a_note(run, capsys):
    with (run / "events.jsonl").open("ab") as journal:
        journal.write(b'{"event":"quantum_leap"}\n{"event":')
    assert exit_code(["show", str(run / "events.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "HUNG (exit 3)" in out and "note (newer_events)" in out and "note (torn_journal)" in out


COMMANDS = (["show"], ["show", "--explain"], ["show", "--md"], ["runs"], ["compare", "last", "last"], ["report", "--format", "json"])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_no_command_fails_on_an_encoding(run, encoding):
    """All in one process: what counts is that each text reaches the stream."""
    code = f"import sys; sys.argv[1:] = []\nfrom runbook.cli.streams import prepare\nfrom runbook.cli.main import exit_code\nprepare([])\nprint([exit_code(list(c)) for c in {COMMANDS!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == b"[0, 0, 0, 0, 0, 0]", done.stderr
    people = done.stdout.split(b"folder:")[0]
    people.decode(encoding)
    assert b"rank 2 - stands -> still" in people if encoding == "ascii" else b"rank 2 \x96 stands -> still \xe9" in people


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_json_object_is_the_same_in_every_encoding(run, encoding):
    done = subprocess.run(
        [sys.executable, "-m", "runbook.cli.main", "show", "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode(encoding))["reason"] == "rank 2 – stands → still é \U0001f600"


def test_a_name_that_no_encoding_can_hold_is_a_usage_error(run):
    done = subprocess.run(
        [sys.executable, "-m", "runbook.cli.main", "show", b"no-\xff-\xe2\x80\x93"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 2 and b"Traceback" not in done.stderr and b"no run" in done.stderr and done.stderr.isascii()


def on_a_terminal(*argv: str, columns: int, **env: str) -> str:
    """What a terminal of this width is sent."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "runbook.cli.main", *argv],
        cwd=ROOT,
        stdout=child,
        stderr=child,
        stdin=child,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **env},
    )
    os.close(child)
    data = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # how Linux tells that the other side has closed
            break
        if not chunk:
            break
        data += chunk
    os.close(parent)
    assert process.wait(timeout=30) == 0, data
    return data.decode()


@pytest.mark.slow
def test_a_narrow_terminal_gets_narrow_lines_and_colour_only_when_wanted(run):
    text = on_a_terminal("show", columns=50)
    assert "\x1b[" in text and "hung" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).split("folder:")[0]
    assert max(len(line) for line in plain.replace("\r", "").splitlines()) <= 50
    followed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_a_terminal("show", "--follow", columns=40, CI=""))
    assert "hung" in followed and max(len(line) for line in followed.replace("\r", "\n").splitlines()) <= 40
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", on_a_terminal("show", columns=50, NO_COLOR="1")), "a colour in spite of NO_COLOR"
    assert "\x1b" not in on_a_terminal("show", columns=50, TERM="dumb")
