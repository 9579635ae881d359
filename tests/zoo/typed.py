"""The same scenarios as a user would ask: `runbook diagnose local --pid N --json`, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from runbook.model.verdict import EXIT_CODES, Diagnosis
from tests.support.schemas import validator
from tests.zoo.looking import box_s, come_late
from tests.zoo.outcome import Outcome, weigh
from tests.zoo.scenario import Scenario
from tests.zoo.staging import ROOT, staged

GRACE_S = 30.0
"""Beyond the time that it was told to look, on a loaded machine."""


def ask(scenario: Scenario, seed: int, folder: Path, most_s: float | None = None) -> Outcome:
    """Type the command; its exit status must be that of its verdict, and it must keep its time."""
    record = folder / f"{scenario.name}-{seed}.jsonl"
    run = folder / f"{scenario.name}-{seed}.run"
    shutil.rmtree(run, ignore_errors=True)
    with staged(scenario, seed) as process:
        come_late(process, scenario, seed)
        box = min(box_s(scenario), most_s or box_s(scenario))
        argv = [sys.executable, "-m", "runbook.cli.main", "diagnose", "local", "--pid", str(process.pid), "--json", "--for", f"{box:.0f}s"]
        began = time.time()
        env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        said = subprocess.run([*argv, "--out", str(run)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=box + GRACE_S)
        validator("diagnose").validate(json.loads(said.stdout))
        answer = msgspec.convert({k: v for k, v in json.loads(said.stdout).items() if k not in ("run", "transcript")}, Diagnosis)
        assert said.returncode == EXIT_CODES[answer.verdict], said.stderr
        shutil.copy(run / "events.jsonl", record)
        return weigh(scenario, seed, answer, process, began, record)
