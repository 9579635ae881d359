"""Each seeded cause of a useless draft is a real one, made by a flag or in the draft's files; the playbook names exactly that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cli import ROOT, Outcome
from tests.e2e.test_story import nothing_stays

pytestmark = pytest.mark.e2e
PLAYBOOK = ROOT / "playbooks" / "zero_acceptance.yaml"
BY_FLAG = {
    "algorithm": ["--speculative-algorithm", "EAGLE"],  # the last of two equal flags counts
    "d2t_read": ["--d2t-as", "ids"],
    "taps_zeros": ["--aux-layers", "zeros"],
    "taps_order": ["--aux-layers", "4,2,0"],
    "taps_off_by_one": ["--aux-layers", "1,3,5"],
}
BY_FILE = {"key_prefix": "key_prefix", "use_aux": "use_aux", "d2t_file": "d2t_twice"}


def named(outcome: Outcome) -> list[str]:
    """The causes whose assertion failed."""
    [end] = [event for event in outcome.events if getattr(event, "type", "") == "assert" and hasattr(event, "verdict")]
    assert all(claim["because"] for claim in end.result["claims"])
    return [claim["that"].split("'")[1] for claim in end.result["claims"] if claim["outcome"] == "false"]


def made(home: Path, cause: str) -> str:
    """A draft with this fault, in the lab's home; answers its folder as the lab sees it."""
    argv = [sys.executable, "-m", "lab_engine.make_draft", "--cause", cause, f"models/faulty-{cause}"]
    subprocess.run(argv, cwd=home, check=True, env={**os.environ, "PYTHONPATH": str(home)})
    return f"models/faulty-{cause}"


def test_a_healthy_server_has_none_of_the_causes(lab, port):
    outcome = lab.runbook("run", PLAYBOOK, "-e", f"port={port}", "--json")
    assert outcome.code == 0, outcome.err
    assert named(outcome) == []
    nothing_stays(lab, outcome)


@pytest.mark.parametrize("cause", BY_FLAG)
def test_the_cause_of_a_flag_is_named_and_no_other(lab, port, cause):
    outcome = lab.runbook("run", PLAYBOOK, "-e", f"port={port}", "-e", f"flags={json.dumps(BY_FLAG[cause])}", "--json")
    assert outcome.code == 1, outcome.err
    assert named(outcome) == [cause]
    assert f"vars.cause != '{cause}'" in outcome.json["reason"]
    nothing_stays(lab, outcome)


@pytest.mark.parametrize("cause", BY_FILE)
def test_the_cause_in_a_drafts_files_is_named_before_anything_is_started(lab, port, cause):
    outcome = lab.runbook("run", PLAYBOOK, "-e", f"port={port}", "-e", f"draft={made(lab.home, BY_FILE[cause])}", "--json")
    assert outcome.code == 1, outcome.err
    assert named(outcome) == [cause]
    assert "server" not in {row["id"] for row in outcome.json["steps"] if row["status"] != "skipped"}
    nothing_stays(lab, outcome)
