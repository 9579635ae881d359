"""What goes wrong on the controller's side while a run goes on: told as what it is, never as a bug in runbook, and the host is clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import Outcome, runbook

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
