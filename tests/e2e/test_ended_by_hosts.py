"""Runs that only their hosts can tell of any more: a folder that is gone, a journal that was emptied after `--reuse`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.cli import runbook
from tests.support.processes import is_gone
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
BOOK = """\
runbook: 1
name: kept
hosts: {{here: local}}
steps:
- id: patch
  patch: {{file: {file}, replace: [{{find: "VALUE = 1", with: "VALUE = 2"}}]}}
- id: server
  launch: {{command: [sleep, '600'], settle: 100ms}}
"""


class Kept:
    """What `run --keep` leaves: a patch, a server, a lease."""

    def __init__(self, folder: Path) -> None:
        self.state, self.file, self.book = folder / "state", folder / "part.py", folder / "book.yaml"
        self.file.write_text("VALUE = 1\n")
        self.book.write_text(BOOK.format(file=self.file))
        self.runs = self.state / "runbook" / "runs"

    def command(self, *args: str):
        """`runbook …`"""
        return runbook(*args, state=self.state)

    def keep(self, *more: str) -> str:
        """Answers the run."""
        done = self.command("run", str(self.book), "--keep", "--json", *more)
        assert done.code == 0, done.err
        return str(done.json["run"])

    @property
    def servers(self) -> list[int]:
        """Their processes, by the records on the host."""
        return [json.loads(path.read_text())["pid"] for path in self.state.glob("runbook-host/runs/*/launches/server.json")]

    def nothing_stays(self, servers: list[int]) -> bool:
        """No server, no patch, no folder on the host."""
        until(lambda: all(is_gone(pid) for pid in servers) and not (self.state / "runbook-host").exists(), 20)
        return self.file.read_text() == "VALUE = 1\n"


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path)
    yield made
    for run in sorted(made.state.glob("runbook-host/runs/*")):
        shutil.rmtree(made.runs / run.name, ignore_errors=True)
        made.command("cancel", run.name, "--host", "local")


def test_what_a_run_took_over_is_ended_with_it_though_its_host_has_it_under_the_other_one(kept):
    first = kept.keep()
    second = kept.keep("--reuse", first)
    servers = kept.servers
    os.truncate(kept.runs / second / "events.jsonl", 0)
    os.utime(kept.runs / second, (1e9, 1e9))
    assert len(servers) == 1 and not is_gone(servers[0])
    ended = kept.command("cancel", second, "--json")
    assert (ended.code, ended.json["left_behind"]) == (0, []), ended.err
    assert kept.nothing_stays(servers)
    [row] = [row for row in json.loads(kept.command("runs", "--json").out) if row["run"] == second]
    assert (row["state"], row["stale"], row["verdict"]) == ("ended", None, "interrupted")
    shown = kept.command("show", second)
    assert "it has ended" in shown.out and "goes on" not in shown.out, shown.out
    again = kept.command("cancel", second)
    assert again.code == 0 and "local: nothing is known there of it" in again.err, again.err


def test_what_was_not_taken_over_stays_with_the_run_that_made_it(kept):
    whole = "runbook: 1\nname: two\nhosts: {here: local}\nsteps:\n- id: server\n  launch: {command: [sleep, '600'], settle: 100ms}\n"
    kept.book.write_text(whole + "- id: other\n  launch: {command: [sleep, '601'], settle: 100ms}\n")
    first = kept.keep()
    kept.book.write_text(whole)
    second = kept.keep("--reuse", first)
    [server] = kept.servers
    [other] = [json.loads(path.read_text())["pid"] for path in kept.state.glob("runbook-host/runs/*/launches/other.json")]
    os.truncate(kept.runs / second / "events.jsonl", 0)
    ended = kept.command("cancel", second)
    assert ended.code == 0 and is_gone(server) and not is_gone(other), ended.err
    assert kept.command("cancel", first).code == 0
    assert kept.nothing_stays([server, other])


def test_what_another_run_uses_is_not_ended_with_the_run_that_made_it(kept):
    first = kept.keep()
    second = kept.keep("--reuse", first)
    shutil.rmtree(kept.runs / first)
    refused = kept.command("cancel", first, "--host", "local")
    assert refused.code == 1 and f"runbook cancel {second}" in refused.err and not is_gone(kept.servers[0]), refused.err
    servers = kept.servers
    assert kept.command("cancel", second).code == 0
    assert kept.nothing_stays(servers)


def test_a_run_whose_folder_is_gone_is_ended_on_the_host_that_is_named(kept):
    run = kept.keep()
    servers = kept.servers
    shutil.rmtree(kept.runs / run)
    told = kept.command("restore", run, "--host", "local")
    assert told.code == 8 and f"runbook cancel {run} --host local" in told.out, told.out
    mistyped = kept.command("cancel", run[:-1], "--host", "local")
    assert mistyped.code == 2 and "the whole id" in mistyped.err, mistyped.err
    for odd in ("", "bad host;x"):
        assert kept.command("cancel", run, "--host", odd).code == kept.command("restore", "--host", odd).code == 2
    assert not is_gone(servers[0])
    lost = kept.command("cancel", run, "--host", "local", "--host", "nobody@127.0.0.1:1")
    assert lost.code == 6 and f"next: runbook cancel {run} --host local --host nobody@127.0.0.1:1" in lost.err, lost.err
    assert kept.nothing_stays(servers)
    assert not (kept.runs / run).exists(), "nothing is made where nothing was"


def test_a_named_host_comes_on_top_of_those_that_are_known(kept):
    run = kept.keep()
    servers = kept.servers
    os.truncate(kept.runs / run / "events.jsonl", 0)
    ended = kept.command("cancel", run, "--host", "nobody@127.0.0.1:1")
    assert ended.code == 6 and "left behind: nobody@127.0.0.1:1" in ended.err, ended.err
    assert kept.nothing_stays(servers)
