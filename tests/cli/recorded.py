"""Recorded runs: journals on disk as the engine writes them, without a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from runbook.engine.journal import EVENTS
from runbook.model.event import EvidenceSaved, HostConnected, RunEnded, RunStarted, RunSuspended, StepEnded, StepStarted
from runbook.model.verdict import Diagnosis, Evidence

T0 = 1_900_000_000.0


def events(
    run: str = "20300317-010000-aaaa",
    *,
    verdict: str = "passed",
    name: str = "EAGLE-3 check",
    t: float = T0,
    reason: str = "why – so →",
    **more: Any,
) -> list[Any]:
    """A run of one step that ends with this verdict; suspended when it is slow."""
    code = {"passed": 0, "hung": 3, "slow": 4}.get(verdict, 1)
    status = {"passed": "passed", "slow": "unknown"}.get(verdict, "failed")
    header = RunStarted(
        format=1,
        run=run,
        version="0.1.0",
        playbook="/p/eagle.yaml",
        playbook_text="",
        playbook_sha256="ab" * 32,
        name=name,
        targets={},
        vars={},
        t=t,
        **more,
    )
    diagnosis = Diagnosis(
        verdict=verdict, rule="stopped", reason=reason, confidence="proven", evidence=(Evidence(signal="state", value="T"),)
    )
    made: list[Any] = [
        header,
        HostConnected(host="box", address="me@box", facts={"hostname": "h", "user": "me", "python_version": "3.11"}, seconds=0.1, t=t + 1),
        StepStarted(step="up", type="wait_healthy", host="box", t=t + 1),
        StepEnded(
            step="up",
            type="wait_healthy",
            host="box",
            status=status,
            verdict=verdict,
            reason=reason,
            seconds=4.0,
            diagnosis=diagnosis,
            t=t + 5,
        ),
        EvidenceSaved(step="up", file="evidence/up/server.log", bytes=4, about="the log", t=t + 5),
    ]
    if verdict == "slow":
        return [*made, RunSuspended(verdict=verdict, kind="on_track", exit_code=4, reason=reason, step="up", expires=4e9, t=t + 6)]
    failed = None if verdict == "passed" else "up"
    return [*made, RunEnded(verdict=verdict, exit_code=code, reason=reason, failed_step=failed, cleanup="passed", t=t + 6)]


def record(folder: Path, made: list[Any], *, evidence: bool = True) -> Path:
    """Write a run's folder; answers it."""
    folder.mkdir(parents=True)
    (folder / EVENTS).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in made))
    if evidence:
        (folder / "evidence" / "up").mkdir(parents=True)
        (folder / "evidence" / "up" / "server.log").write_bytes(b"log\n")
    return folder


def recorded(state: Path, run: str = "20300317-010000-aaaa", **more: Any) -> Path:
    """A run in the state folder, where `runbook runs` finds it."""
    return record(state / "runbook" / "runs" / run, events(run, **more))
