"""A recorded run is judged again: the same verdict by the same profile, another one where a copy gives the phase more time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runbook.cli.main import exit_code
from tests.cli.running import ROOT
from tests.cli.test_diagnose import diagnose, start

__all__ = ["diagnose", "start"]
PROFILE = "profile: {name}\nextends: generic\nphases: [{{id: batch, mark: serving batch, stall: {stall}}}]\n"
MOVES_NOTHING = (
    "import sys, pathlib\nsys.path.insert(0, {root!r})\nfrom runbook.lab.faults import Stage, livelock\n"
    "livelock(Stage(3, pathlib.Path({folder!r})))\n"
)


@pytest.mark.slow
def test_a_threshold_in_a_copy_of_the_profile_decides_otherwise(diagnose, start, tmp_path, capsys, monkeypatch):
    """A server that moves requests to and fro: hung once the budget of its phase is spent, and not before."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config" / "runbook" / "profiles"
    profiles.mkdir(parents=True)
    for name, stall in (("quick", "12s"), ("patient", "2h")):
        (profiles / f"{name}.yaml").write_text(PROFILE.format(name=name, stall=stall))
    (tmp_path / "serve.py").write_text(MOVES_NOTHING.format(root=str(ROOT), folder=str(tmp_path)))
    server = start(str(tmp_path / "serve.py"))
    code, answer = diagnose("--pid", str(server.pid), "--for", "120s", "--profile", "quick")
    assert (code, answer["verdict"], answer["kind"]) == (3, "hung", "livelock"), answer["reason"]

    def judged(*argv: str) -> tuple[int, dict[str, object]]:
        code = exit_code(["judge", answer["run"], "--json", *argv])
        (wait,) = json.loads(capsys.readouterr().out)["waits"]
        return code, wait

    code, wait = judged()
    assert (code, wait["same"], wait["derived"]["reason"]) == (0, True, answer["reason"])
    code, wait = judged("--profile", str(Path(profiles, "patient.yaml")))
    assert (code, wait["same"], wait["certain"]) == (1, False, False) and wait["derived"]["verdict"] != "hung"
