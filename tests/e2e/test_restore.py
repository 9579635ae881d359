"""A patch never outlives its run: not when the controller is killed, not when everybody is; and it can be taken back by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.engine.journal import load_events
from runbook.model.event import Found
from runbook.onhost import keeper_link, lease, procs
from runbook.onhost.runfolder import RunFolder
from tests.e2e.cli import runbook, start
from tests.e2e.test_story import DRAFT, fingerprint, story
from tests.support.processes import children, is_gone
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
MODULE = """\
def answer(question):
    reply = question * 2
    return reply


def other():
    for number in range(3):
        yield number


NAME = "part"
"""
PLAYBOOK = """
runbook: 1
hosts: {{box: local}}
steps:
  - id: look
    patch: {{file: {file}, undo_after: {undo_after}, probes: [{{at: answer, where: entry, show: [question]}}]}}
{more}
  - id: hold
    run: {{shell: sleep 300, timeout: 10m}}
"""
SERVER = "  - id: server\n    launch: {command: [sleep, '300']}"


class Run:
    """A run on this machine that has patched a file and waits."""

    def __init__(self, folder: Path, state: Path, undo_after: str = "2h", more: str = "") -> None:
        self.state = state
        self.file = folder / "part.py"
        self.file.write_text(MODULE)
        os.utime(self.file, ns=(10**18, 10**18))
        self.before = fingerprint(self.file)
        playbook = folder / "hold.yaml"
        playbook.write_text(PLAYBOOK.format(file=self.file, undo_after=undo_after, more=more))
        self.controller = start("run", playbook, "--json", state=state)
        until(lambda: any('"step":"hold"' in text for text in self._journals()), 30)
        assert fingerprint(self.file) != self.before
        [self.folder] = (state / "runbook" / "runs").glob("*/events.jsonl")
        self.id = self.folder.parent.name

    def _journals(self) -> list[str]:
        return [path.read_text() for path in (self.state / "runbook" / "runs").glob("*/events.jsonl")]

    @property
    def on_host(self) -> RunFolder:
        """What the run left on the host, which is this machine."""
        return RunFolder(str(self.state / "runbook-host"), self.id)

    @property
    def keeper(self) -> int:
        return int(json.loads(Path(self.on_host.keeper).read_text())["pid"])

    @property
    def server(self) -> int:
        return int(json.loads(Path(self.on_host.launch_file("server")).read_text())["pid"])

    def kill(self) -> float:
        """-9 for the controller; answers when."""
        self.controller.kill()
        self.controller.communicate()
        return time.monotonic()

    def kill_keeper(self) -> None:
        pid = self.keeper
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid))

    def restore(self, *args: str) -> tuple[int, dict]:
        """`runbook restore … --json`: exit code and object."""
        done = runbook("restore", *args, "--json", state=self.state)
        assert done.out, done.err
        return done.code, json.loads(done.out)

    def close(self) -> None:
        if self.controller.poll() is None:
            self.kill()
        keeper = keeper_link.living(self.on_host)
        for pid in [keeper["pid"], *procs.descendants(keeper["pid"])] if keeper else []:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def patched(tmp_path: Path) -> Iterator:
    """Starts a run that waits with a patched file."""
    made: list[Run] = []

    def make(**more: str) -> Run:
        made.append(Run(tmp_path, tmp_path / "state", **more))
        return made[-1]

    yield make
    for run in made:
        run.close()


def test_after_kill_9_the_file_is_back_when_undo_after_has_passed_without_anybodys_help(patched):
    """And not before: while the controller lives it renews a timer that is shorter than its steps."""
    run = patched(undo_after="2s")
    until_then = time.monotonic() + 2.5
    while time.monotonic() < until_then:
        assert fingerprint(run.file) != run.before
        time.sleep(0.05)
    killed = run.kill()
    until(lambda: fingerprint(run.file) == run.before, 10)
    assert 1.0 < time.monotonic() - killed < 5


def test_restore_of_the_run_does_it_at_once_and_a_second_time_does_nothing(patched):
    run = patched()
    run.kill()
    code, answer = run.restore(run.id[:-1])
    assert (code, [(row["id"], row["state"]) for row in answer["patches"]]) == (0, [("look", "restored")])
    assert fingerprint(run.file) == run.before
    assert run.restore(run.id) == (0, {"patches": [], "unreachable": [], "exit_code": 0})


def test_a_run_that_goes_on_is_not_disturbed_unless_forced(patched):
    run = patched()
    for args in ([run.id], ["--host", "local"]):
        code, answer = run.restore(*args)
        assert (code, answer["patches"][0]["state"]) == (8, "refused"), args
    assert fingerprint(run.file) != run.before
    assert run.restore("--host", "local", "--force")[0] == 0
    assert fingerprint(run.file) == run.before


def test_with_controller_and_keeper_dead_the_host_lists_it_the_next_run_says_so_and_restore_gives_it_back(patched, tmp_path):
    run = patched()
    run.kill()
    run.kill_keeper()
    code, answer = run.restore("--host", "local", "--list")
    [row] = answer["patches"]
    assert (code, row["run"], row["path"], row["state"]) == (0, run.id, str(run.file), "patched")
    assert row["sha_now"] == row["sha_patched"] != row["sha_before"] and row["age_s"] < 120
    assert "keeper is gone" in row["notes"][0]
    other = tmp_path / "other.yaml"
    other.write_text("runbook: 1\nhosts: {box: local}\nsteps: [{run: 'true'}]\n")
    done = runbook("run", other, "--json", state=run.state)
    assert done.code == 0, done.err
    [said] = [event.finding for event in load_events(Path(done.json["transcript"]["dir"])) if isinstance(event, Found)]
    assert said.code == "abandoned_patch" and run.id in said.text and "runbook restore --host local" in said.text
    code, answer = run.restore("--host", "local")
    assert (code, answer["patches"][0]["state"]) == (0, "restored")
    assert fingerprint(run.file) == run.before


def test_somebody_elses_edit_is_left_alone_and_all_three_sides_are_named(patched):
    run = patched()
    run.kill()
    run.file.write_text(run.file.read_text().replace("range(3)", "range(4)"))
    theirs = fingerprint(run.file)
    done = runbook("restore", run.id, state=run.state)
    assert done.code == 1
    [row] = run.restore(run.id)[1]["patches"]
    assert fingerprint(run.file) == theirs
    assert all(row[key][:12] in done.out for key in ("sha_before", "sha_patched", "sha_now"))
    merge = next(line for line in done.out.splitlines() if "diff3" in line).partition(": ")[2]
    assert subprocess.run(["sh", "-c", merge], capture_output=True, text=True).stdout == MODULE.replace("range(3)", "range(4)")
    run.file.write_text(MODULE)
    assert run.restore(run.id)[1]["patches"][0]["state"] == "already"


def test_servers_are_left_alone_and_named(patched):
    run = patched(more=SERVER)
    run.kill()
    [row] = run.restore(run.id)[1]["patches"]
    assert (row["state"], row["notes"]) == ("restored", [f"pid {run.server} still runs with what it has loaded"])
    assert not is_gone(run.server)


def test_restore_with_stop_ends_the_server_first(patched):
    run = patched(more=SERVER)
    run.kill()
    server = run.server
    code, answer = run.restore(run.id, "--stop")
    assert (code, answer["patches"][0]["notes"]) == (0, [])
    assert is_gone(server)
    assert fingerprint(run.file) == run.before


KEPT = """
runbook: 1
hosts: {box: local}
steps:
  - id: server
    launch: {command: [sleep, '300'], settle: 100ms}
"""


@pytest.fixture
def kept(tmp_path):
    """A run that has ended and kept its server: (state, its id, its folder on the host, the server's pid)."""
    state, book = tmp_path / "state", tmp_path / "kept.yaml"
    book.write_text(KEPT)
    done = runbook("run", book, "--keep", "--json", state=state)
    assert done.code == 0, done.err
    on_host = RunFolder(str(state / "runbook-host"), done.json["run"])
    pid = json.loads(Path(on_host.launch_file("server")).read_text())["pid"]
    yield state, done.json["run"], on_host, pid
    keeper = keeper_link.living(on_host)
    for left in [keeper["pid"], *procs.descendants(keeper["pid"])] if keeper else []:
        os.kill(left, signal.SIGKILL)


def test_restore_with_stop_says_what_it_ended_and_gives_the_lease_back(kept):
    state, run, on_host, pid = kept
    assert os.path.exists(lease.path_of(on_host))
    done = runbook("restore", "last", "--stop", state=state)
    assert done.out.splitlines() == [f"local: ended `server` of run {run} (pid {pid})", f"local: the lease of run {run} was given back"]
    assert done.code == 0 and is_gone(pid) and not os.path.exists(lease.path_of(on_host))
    again = runbook("restore", "last", "--stop", state=state)
    assert again.out == f"nothing of run {run} is patched or runs on local\n"
    assert runbook("cancel", run, state=state).code == 0 and not on_host.exists()
    assert runbook("restore", "last", state=state).out == f"nothing of run {run} is patched: its journal owes nothing\n"


def test_cancel_of_a_kept_run_says_what_it_ended(kept):
    state, run, on_host, pid = kept
    done = runbook("cancel", run, "--json", state=state)
    told = [finding["text"] for finding in done.json["findings"] if finding["code"] == "kept_ended"]
    assert told == [f"local: server of `server` (pid {pid}): stopped"] and told[0] in done.err
    assert done.code == 0 and is_gone(pid) and not on_host.exists()


def test_a_dead_keeper_is_replaced_while_the_controller_lives(patched):
    """So when the controller dies as well, the file still comes back by itself."""
    run = patched(undo_after="2s")
    dead = run.keeper
    run.kill_keeper()
    until(lambda: "keeper_replaced" in run.folder.read_text(), 10)
    assert run.keeper != dead
    assert fingerprint(run.file) != run.before
    run.kill()
    until(lambda: fingerprint(run.file) == run.before, 10)


def test_when_the_on_host_helper_is_killed_the_controller_connects_again_and_cleans_up(patched):
    """Else the file would stay changed until `undo_after`, two hours here. What the dead one ran is undecided: nobody saw its end."""
    run = patched()
    [helper] = children(run.controller.pid)
    os.kill(helper, signal.SIGKILL)
    out, err = run.controller.communicate(timeout=60)
    answer = json.loads(out)
    assert (run.controller.returncode, answer["verdict"]) == (9, "undecided"), err
    assert answer["cleanup"] == {"status": "passed"} and answer["left_behind"] == []
    assert fingerprint(run.file) == run.before
    assert not run.on_host.exists()


def test_a_host_that_is_not_there_is_unreachable(tmp_path):
    done = runbook("restore", "--host", "nobody@127.0.0.1:1", "--list", state=tmp_path)
    assert done.code == 6 and "not reached" in done.err


def test_on_the_lab_a_killed_story_stops_its_loading_server_and_gives_the_file_back(lab, port, tmp_path):
    """A server that still imports must not see the file change back under it: it is stopped first."""
    command = ["python", "-m", "lab_engine.launch_server", "--port", str(port), "--speculative-algorithm", "EAGLE3", "--load-rate", "20KiB"]
    path = story(tmp_path, launch={"command": command}, taps={"undo_after": "2s"})
    before = fingerprint(lab.home / DRAFT)
    folder = tmp_path / "run"
    child = start("run", path, "--json", "--out", folder, state=lab.state)
    journal = folder / "events.jsonl"
    until(lambda: journal.exists() and '"step":"up"' in journal.read_text() and '"event":"sample"' in journal.read_text(), 60)
    assert fingerprint(lab.home / DRAFT)[0] != before[0]
    child.kill()
    child.communicate()
    until(lambda: fingerprint(lab.home / DRAFT) == before, 20)
    assert lab.processes() == []
    done = lab.runbook("cancel", folder, "--json")
    assert done.code == 0, done.err
    assert lab.host_files() == []
