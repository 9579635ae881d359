"""What goes wrong on the controller's side while a run goes on: told as what it is, never as a bug in runbook, and the host is clean."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cli import ROOT, Outcome, runbook, start
from tests.support.waiting import until

BOOK = """\
runbook: 1
name: bad luck
hosts: {{here: local}}
steps:
- id: server
  launch: {{command: [sleep, '600'], settle: 100ms}}
- id: luck
  run: {luck}
- run: echo after
"""


class Box:
    """A playbook whose second step is `luck`, and the run's folder `out`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.out = folder, folder / "state", folder / "away" / "out"

    def run(self, luck: str, *more: str) -> Outcome:
        """Run it to its end."""
        script = self.folder / "luck.sh"
        script.write_text(luck)
        (self.folder / "book.yaml").write_text(BOOK.format(luck=f"sh {script}"))
        done = runbook("run", self.folder / "book.yaml", "--out", self.out, "--json", *more, state=self.state)
        assert "Traceback" not in done.err and "bug in runbook" not in done.err, done.err
        assert not (self.state / "runbook-host").exists(), "the host is clean"
        return done


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A box."""
    return Box(tmp_path)


@pytest.mark.e2e
def test_a_run_whose_folder_was_removed_goes_on_and_its_journal_is_written_anew(box):
    done = box.run(f"rm -r {box.out.parent}")
    assert (done.code, done.json["verdict"]) == (0, "passed"), done.err
    assert [row["code"] for row in done.json["findings"]] == ["folder_removed"]
    assert (box.out / "transcript.html").exists() and runbook("show", box.out, state=box.state).code == 0


@pytest.mark.e2e
def test_a_run_whose_folder_cannot_be_made_again_cleans_up_and_says_why(box):
    done = box.run(f"rm -r {box.out.parent}; echo x > {box.out.parent}")
    assert (done.code, done.json["verdict"], done.json["cleanup"]["status"]) == (70, "error", "passed"), done.err
    assert "Not a directory; all was cleaned up" in done.json["reason"]


@pytest.mark.e2e
@pytest.mark.parametrize(("first", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_leaves_at_once_with_the_code_of_the_first_and_cancel_does_the_rest(box, first, code):
    begun = box.folder / "begun"
    (box.folder / "book.yaml").write_text(BOOK.format(luck="sleep 600") + f"always:\n- run: touch {begun}; sleep 3\n")
    child = start("run", box.folder / "book.yaml", "--out", box.out, "--json", state=box.state)
    until(lambda: (box.out / "events.jsonl").exists() and '"step":"luck"' in (box.out / "events.jsonl").read_text(), 60)
    child.send_signal(first)
    until(begun.exists, 60)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=30)
    answer = json.loads(out)
    assert (child.returncode, answer["exit_code"]) == (code, code) and "left at once" in err, err
    assert answer["left_behind"] == ["local: launch of `server`"] and answer["next"] == [f"runbook cancel {answer['run']}"]
    assert runbook("cancel", box.out, state=box.state).code == 0
    assert not (box.state / "runbook-host").exists()


@pytest.mark.e2e
def test_a_full_device_for_both_streams_is_no_verdict_and_the_host_is_clean(box):
    (box.folder / "book.yaml").write_text(BOOK.format(luck="echo hi"))
    env = {**os.environ, "XDG_STATE_HOME": str(box.state), "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "runbook.cli.main", "run", "book.yaml", "--json"]
        done = subprocess.run(argv, cwd=box.folder, env=env, stdout=full, stderr=full, timeout=120, check=False)
    assert done.returncode == 70 and not (box.state / "runbook-host").exists()
    shown = runbook("show", "last", "--json", state=box.state)
    assert json.loads(shown.out)["verdict"] == "passed"


def _poor(box, *args: str, limit: int | None = None, out: str = "") -> subprocess.CompletedProcess[str]:
    """`runbook …` where files may not grow beyond `limit`, or what it prints goes to the file `out`."""
    (box.folder / "book.yaml").write_text(BOOK.format(luck="echo hi"))
    argv = [sys.executable, "-B", "-m", "runbook.cli.main", *args]
    env = {**os.environ, "XDG_STATE_HOME": str(box.state), "PYTHONPATH": str(ROOT)}
    with open(out or os.devnull, "w") as stdout:
        more = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))} if limit else {}
        return subprocess.run(
            argv, cwd=box.folder, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False, **more
        )


@pytest.mark.e2e
@pytest.mark.parametrize("how", [[], ["--detach"]])
def test_a_disk_that_is_full_at_the_first_event_is_told_as_what_it_is(box, how):
    done = _poor(box, "run", "book.yaml", *how, limit=700)
    assert done.returncode == 70 and "the run did not begin, and nothing was done on its hosts" in done.stderr, done.stderr
    assert "File too large" in done.stderr and "free some space" in done.stderr and "bug" not in done.stderr, done.stderr
    assert not (box.state / "runbook-host").exists()


@pytest.mark.e2e
@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_detached_run_whose_id_could_not_be_printed_is_told_on_stderr(box, how):
    done = _poor(box, "run", "book.yaml", "--detach", *how, out="/dev/full")
    [run] = [folder.name for folder in (box.state / "runbook" / "runs").iterdir()]
    assert done.returncode == 70 and f"run {run} goes on" in done.stderr and f"runbook wait {run}" in done.stderr, done.stderr
    assert runbook("wait", run, "--for", "60s", state=box.state).code == 0
