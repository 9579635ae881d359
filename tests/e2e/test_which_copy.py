"""The playbook that says which file a server really imports."""

from __future__ import annotations

import shutil

import pytest

from runbook.model.event import StepEnded
from tests.e2e.cli import ROOT, Outcome
from tests.e2e.test_story import DRAFT, nothing_stays

pytestmark = pytest.mark.e2e
PLAYBOOK = ROOT / "playbooks" / "which_copy.yaml"


def result(outcome: Outcome, step: str) -> dict:
    return next(dict(event.result) for event in outcome.events if isinstance(event, StepEnded) and step in (event.step, event.type))


def test_the_only_copy_is_named_and_reported_by_the_server_itself(lab, port):
    outcome = lab.runbook("run", PLAYBOOK, "-e", f"port={port}", "-e", f"mine={lab.home / DRAFT}", "--json")
    assert outcome.code == 0, outcome.err
    path = str(lab.home / DRAFT)
    assert (result(outcome, "lookup")["path"], result(outcome, "lookup")["others"]) == (path, [])
    assert {one["file"] for one in result(outcome, "seen")["imports"]} == {path}
    nothing_stays(lab, outcome)


def test_an_edit_in_another_checkout_on_the_path_is_told_apart_from_what_runs(lab, port):
    """The working directory comes before PYTHONPATH: the copy there is on the path, and never imported."""
    checkout = lab.home / "checkout"
    shutil.copytree(lab.home / "lab_engine", checkout / "lab_engine")
    mine = checkout / DRAFT
    outcome = lab.runbook("run", PLAYBOOK, "-e", f"port={port}", "-e", f"mine={mine}", "-e", f"env={{PYTHONPATH: '{checkout}'}}", "--json")
    shutil.rmtree(checkout)
    assert outcome.code == 1, outcome.err
    assert [claim["outcome"] for claim in result(outcome, "assert")["claims"]] == ["true", "false", "false"]
    assert result(outcome, "lookup")["others"] == [str(mine)]
    assert {one["file"] for one in result(outcome, "seen")["imports"]} == {str(lab.home / DRAFT)}
    nothing_stays(lab, outcome)
