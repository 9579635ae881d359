"""A patched file that is not there any more at the end of a run: put back, given up, or left behind, and everybody says the same."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from runbook.hosts.local import connect_local
from runbook.model.event import Settled
from tests.engine.real import run_here

BOOK = """\
runbook: 1
name: a patched file that goes
hosts: {{here: local}}
steps:
- patch: {{file: {file}, replace: [{{find: "VALUE = 1", with: "VALUE = 2"}}]}}
- run: {gone}
"""


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays a run whose script makes the file go; answers its end, its findings, how the patch was settled, and what lies on the host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "site" / "part.py"
    file.parent.mkdir()
    file.write_text("VALUE = 1\n")
    file.chmod(0o640)

    def play(gone: str):
        ended, events = run_here(BOOK.format(file=file, gone=gone), tmp_path / "run")
        found = [event.finding.code for event in events if hasattr(event, "finding")]
        settled = [event.how for event in events if isinstance(event, Settled) and event.id.startswith("patch:")]
        return ended, found, settled, [str(path) for path in (tmp_path / "state").rglob("record.json")]

    play.file = file
    return play


@pytest.mark.slow
def test_a_deleted_file_is_back_at_the_end_and_the_run_says_so(played):
    ended, found, settled, on_host = played(f"rm {played.file}")
    assert (ended.verdict, ended.left_behind, settled, on_host) == ("passed", [], ["restored"], []), ended.reason
    assert "patch_undone" in found
    assert (played.file.read_text(), played.file.stat().st_mode & 0o777) == ("VALUE = 1\n", 0o640)


@pytest.mark.slow
def test_a_file_whose_folder_was_moved_is_left_behind_and_restored_once_that_is_back_or_given_up(played, tmp_path):
    away = tmp_path / "elsewhere"
    ended, _, settled, on_host = played(f"mv {played.file.parent} {away}")
    assert (ended.verdict, ended.cleanup, settled, len(on_host)) == ("failed", "failed", [], 1), ended.reason
    run = Path(on_host[0]).parts[-4]
    assert any(f"runbook restore {run} --forget {played.file}" in line for line in ended.left_behind), ended.left_behind
    restore = ["restore", run, "--host", "local", "--force"]
    assert exit_code(restore) == 1
    assert exit_code([*restore, "--forget", str(away)]) == 2, "no such file is patched"
    assert exit_code([*restore, "--forget", str(played.file)]) == 0
    assert "VALUE = 2" in (away / played.file.name).read_text(), "it was given up"
    with contextlib.closing(connect_local()) as host:
        assert list(host.retire(run)) == []


@pytest.mark.slow
def test_a_file_whose_disk_is_away_is_left_behind_with_what_to_do_and_can_be_restored_later(played, tmp_path):
    """The device in the record is another one: so it looks when the disk is not mounted."""
    script = tmp_path / "away.sh"
    script.write_text(f"""rm {played.file}; sed -i 's/"device": /"device": -/' $XDG_STATE_HOME/runbook-host/runs/*/undo/*/record.json""")
    ended, _, settled, on_host = played(f"sh {script}")
    assert (ended.verdict, ended.cleanup, settled, len(on_host)) == ("failed", "failed", [], 1), ended.reason
    assert any("mounted" in line and str(played.file) in line for line in ended.left_behind)
    run = Path(on_host[0]).parts[-4]
    assert [line.split("  #")[0] for line in ended.next] == [
        f"runbook show {run}",
        f"runbook restore {run} --list",
        f"runbook cancel {run}",
    ]
    record = Path(on_host[0])
    record.write_text(record.read_text().replace('"device": -', '"device": '))
    with contextlib.closing(connect_local()) as host:
        assert [report.state for report in host.restore(run)] == ["restored"]
        assert list(host.retire(run)) == []
    assert played.file.read_text() == "VALUE = 1\n" and not (tmp_path / "state" / "runbook-host").exists()
