"""Runs whose journal tells too little: never begun, emptied, or with a line of somebody else. Every command says the same of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from tests.e2e.cli import runbook, start
from tests.support.processes import is_gone
from tests.support.waiting import until

BOOK = """\
runbook: 1
name: long
hosts: {{here: local}}
steps:
- id: patch
  patch: {{file: {file}, replace: [{{find: "VALUE = 1", with: "VALUE = 2"}}]}}
- id: server
  launch: {{command: [sleep, '600'], settle: 100ms}}
- id: hold
  run: {{shell: "echo $$ > {pid}; sleep 600", timeout: 20m}}
"""


class Held:
    """A run that holds a patch, a server and a script."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.file, pid = folder, folder / "state", folder / "part.py", folder / "pid"
        self.file.write_text("VALUE = 1\n")
        (folder / "book.yaml").write_text(BOOK.format(file=self.file, pid=pid))
        self.child = start("run", folder / "book.yaml", "--out", folder / "out", "--json", state=self.state)
        until(lambda: pid.exists() and pid.read_text().strip(), 60)
        self.script = int(pid.read_text())
        self.journal = folder / "out" / "events.jsonl"
        [link] = (self.state / "runbook" / "runs").iterdir()
        self.run = link.name

    def kill(self) -> None:
        """-9 of its controller: the script and the server live on."""
        self.child.send_signal(signal.SIGKILL)
        self.child.communicate()
        assert not is_gone(self.script)

    def command(self, *args: str):
        """`runbook …`"""
        return runbook(*args, state=self.state)

    def nothing_stays(self) -> bool:
        """No script, no patch, no folder on the host."""
        until(lambda: is_gone(self.script), 20)
        until(lambda: not (self.state / "runbook-host").exists(), 20)  # an old helper goes a moment after its script
        return self.file.read_text() == "VALUE = 1\n"


@pytest.fixture
def held(tmp_path):
    made = Held(tmp_path)
    yield made
    made.child.kill()
    made.child.communicate()
    if (made.state / "runbook-host").exists():
        made.command("cancel", made.run)


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["emptied", "foreign line"])
def test_what_a_run_left_is_ended_by_its_hosts_where_the_journal_cannot_tell(held, how):
    held.kill()
    if how == "emptied":
        os.truncate(held.journal, 0)
        os.utime(held.journal.parent, (1e9, 1e9))
        waited = held.command("wait", held.run, "--json")
        assert (waited.code, json.loads(waited.out)["next"]) == (9, [f"runbook cancel {held.run}"]), waited.err
        shown = held.command("show", held.run)
        assert shown.code == 0 and "lost" in shown.out and "runbook cancel" in shown.out, shown.out + shown.err
        assert " lost " in held.command("runs").out
    else:
        held.journal.write_bytes(held.journal.read_bytes() + b"not ours\n" + held.journal.read_bytes())
    resumed = held.command("resume", held.run)
    assert resumed.code == 2 and "runbook cancel" in resumed.err, resumed.err
    ended = held.command("cancel", held.run, "--json")
    assert (ended.code, ended.json["left_behind"], ended.json["run"]) == (0, [], held.run), ended.err
    assert held.nothing_stays()
    assert held.command("cancel", held.run).code == 0, "a second time there is nothing"


@pytest.mark.e2e
def test_where_nothing_tells_its_hosts_they_can_be_named(held):
    assert held.command("cancel", held.run, "--host", "local").code == 2, "its journal tells them"
    held.kill()
    os.truncate(held.journal, 0)
    (held.journal.parent / "controller.lock").unlink()
    unknown = held.command("cancel", held.run)
    assert unknown.code == 2 and f"runbook cancel {held.run} --host HOST" in unknown.err, unknown.err
    named = held.command("cancel", held.run, "--host", "local")
    assert named.code == 0 and held.nothing_stays(), named.err


@pytest.mark.e2e
def test_a_run_whose_journal_was_emptied_under_its_controller_is_cancelled_by_that(held):
    os.truncate(held.journal, 0)
    second = held.command("resume", held.run)
    assert second.code == 8 and f"pid {held.child.pid}" in second.err, second.err
    ended = held.command("cancel", held.run)
    assert ended.code == 0, ended.err
    out, err = held.child.communicate(timeout=60)
    assert (held.child.returncode, json.loads(out)["verdict"]) == (130, "interrupted"), err
    assert held.nothing_stays()


@pytest.mark.e2e
def test_a_run_without_a_folder_here_that_was_renewed_just_now_is_left_to_its_controller(held):
    (held.state / "runbook" / "runs" / held.run).unlink()
    refused = held.command("cancel", held.run, "--host", "local")
    assert refused.code == 8 and "a controller elsewhere may go on with it" in refused.err, refused.err
    assert not is_gone(held.script) and held.file.read_text() != "VALUE = 1\n"
    assert held.command("cancel", str(held.folder / "out")).code == 0
    held.child.communicate(timeout=60)
    assert held.nothing_stays()


def test_a_run_that_never_began_is_told_alike_by_all_commands(own_state, capsys):
    folder = own_state / "runbook" / "runs" / "20260101-101010-abcd"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").touch()
    os.utime(folder, (1e9, 1e9))
    assert exit_code(["runs", "--state", "lost", "--json"]) == 0
    assert [(row["run"], row["stale"]) for row in json.loads(capsys.readouterr().out)] == [(folder.name, "lost")]
    assert exit_code(["show", folder.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stale"] == "lost"
    for command in ("resume", "restore", "cancel"):
        assert exit_code([command, folder.name]) == 2
        said = capsys.readouterr().err
        assert "its journal is empty" in said and ("runbook cancel" in said or "--host HOST" in said), said
