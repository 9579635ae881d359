"""The hooks that this repository defines, run by the real pre-commit in a repository of playbooks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
GOOD = "runbook: 1\nhosts:\n  box: local\nsteps:\n  - run: uname -r\n"
pytest.importorskip("pre_commit", reason="pre-commit is not installed")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def team(tmp_path):
    """A repository with playbooks whose hooks come from a repository with our definition. The installed `runbook` runs them."""
    ours = tmp_path / "ours"
    ours.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", ours)
    git(ours, "init", "-q")
    git(ours, "add", ".")
    git(ours, "commit", "-qm", "hooks")
    folder = tmp_path / "team"
    (folder / "playbooks" / "vars").mkdir(parents=True)
    hooks = [{"id": name, "language": "system"} for name in ("runbook-validate", "runbook-fmt")]
    config = {"repos": [{"repo": str(ours), "rev": git(ours, "rev-parse", "HEAD"), "hooks": hooks}]}
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(folder, "init", "-q")
    return folder


def hooks(folder: Path) -> subprocess.CompletedProcess[str]:
    git(folder, "add", ".")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(folder.parent / "cache")}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_good_playbooks_pass_and_vars_files_are_left_alone(team):
    (team / "playbooks" / "good.yaml").write_text(GOOD)
    (team / "playbooks" / "vars" / "box.yaml").write_text("port: 8000\n")
    (team / "other.yaml").write_text("not: a playbook\n")
    done = hooks(team)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Passed") == 2


def test_a_mistake_stops_the_commit_with_its_place_and_the_form_is_repaired(team):
    (team / "playbooks" / "bad.yaml").write_text(GOOD.replace("run:", "rum:"))
    (team / "x.runbook.yaml").write_text(GOOD.replace("  - run", "    - run"))
    done = hooks(team)
    assert done.returncode == 1
    assert "playbooks/bad.yaml:5:5: error[unknown-step]" in done.stdout and "did you mean `run`?" in done.stdout
    assert (team / "x.runbook.yaml").read_text() == GOOD, "files were modified by this hook"
