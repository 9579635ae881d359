"""Kill -9 the controller of the founding story on the lab, at random moments, and go on with it each time."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.chaos.controller_kills import ROOT
from tests.chaos.frame import Outcome, Scenario
from tests.e2e.cli import Outcome as Answer
from tests.e2e.conftest import Lab

KILLS = 5
BEFORE = "before the header"
STORY = ROOT / "playbooks" / "eagle3_fusion.yaml"
LONGEST_S = 16.0
"""The last moment of a kill after the start; the story takes about 20 s on two cores."""


def killed(rng: random.Random, folder: Path) -> Outcome:
    """Five runs on one lab, each killed once, then resumed; with `--redo` where a request was in flight."""
    began, faults, where = time.monotonic(), [], []
    lab = Lab(folder)
    up = lab.runbook("lab", "up")
    if up.code != 0:
        return Outcome(False, "error", time.monotonic() - began, note=up.err)
    try:
        draft = lab.home / "lab_engine" / "models" / "llama_eagle3.py"
        before = hashlib.sha256(draft.read_bytes()).hexdigest()
        for number in range(KILLS):
            step, found = _one(lab, folder / f"run{number}", rng.uniform(1.0, LONGEST_S))
            where.append(step)
            faults += [f"{number} ({step}): {fault}" for fault in found]
            if hashlib.sha256(draft.read_bytes()).hexdigest() != before:
                faults.append(f"{number} ({step}): the draft's file is not as it was")
        left = tuple(lab.processes() + lab.host_files())
    finally:
        lab.runbook("lab", "down")
    note = "; ".join([f"{KILLS} kills, in {', '.join(sorted(set(where)))}", *faults[:3]])
    return Outcome(not faults and not left, "as undisturbed", time.monotonic() - began, left, note)


def _one(lab: Lab, run: Path, after_s: float) -> tuple[str, list[str]]:
    """(the last step that had begun, what did not hold)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "runbook.cli.main", "run", str(STORY), "-e", f"port={port}", "--out", str(run)]
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "XDG_STATE_HOME": str(lab.state)}, start_new_session=True, **quiet)
    try:
        child.wait(after_s)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    step = _last_step(run)
    if step == BEFORE:
        return step, []
    answer = _resumed(lab, run)
    verdict = answer.json["verdict"]
    return step, [] if verdict == "passed" else [f"ended {verdict}: {answer.json.get('reason')} {answer.err[-300:]}"]


def _resumed(lab: Lab, run: Path) -> Answer:
    answer = lab.runbook("resume", run, "--json")
    redo = [line for line in answer.json.get("next", ()) if "--redo" in line]
    if answer.json.get("state") == "suspended" and redo:
        return lab.runbook("resume", run, "--json", *redo[0].split("#")[0].split()[3:])
    return answer


def _last_step(run: Path) -> str:
    try:
        lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    except OSError:
        return BEFORE
    begun = [
        event["step"] for event in map(json.loads, filter(lambda line: line.endswith(b"\n"), lines)) if event["event"] == "step_started"
    ]
    return begun[-1] if begun else "before the first step"


SCENARIOS = (Scenario("on_the_lab", killed),)
