"""A run folder on disk, as `runbook run` leaves one, with whatever secrets a test puts into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from runbook.model.event import AnyEvent, EvidenceSaved, RunEnded, RunStarted, StepEnded, StepStarted
from runbook.model.verdict import Diagnosis, Evidence

RUN = "20260301-101500-ab12"
T = 1_772_360_100.0


def hung(extra: str = "", run: str = RUN, log: str = "") -> list[AnyEvent]:
    """A wait that was judged hung; `extra` stands in the reason, `log` in the failing step's output."""
    evidence = (Evidence(signal="log_quiet_s", value=512, points_to="hung"), Evidence(signal="threads", value="frozen", points_to="hung"))
    reason = f"rank 3 waits in allreduce for 512 s{extra}"
    end = StepEnded(
        step="up",
        type="wait_healthy",
        status="failed",
        verdict="hung",
        kind="deadlock",
        seconds=600.0,
        reason=reason,
        result={"text": f"[rank3] entering allreduce\n{log}"},
        diagnosis=Diagnosis(verdict="hung", rule="ranks_diverge", reason=reason, confidence="proven", evidence=evidence),
        t=T + 700,
    )
    header = RunStarted(
        format=1,
        run=run,
        version="0",
        playbook="fusion.yaml",
        playbook_text="",
        playbook_sha256="0" * 64,
        name="Fusion check",
        targets={},
        vars={},
        secrets=["DECLARED"],
        t=T,
    )
    closing = RunEnded(verdict="hung", kind="deadlock", exit_code=3, reason=reason, failed_step="up", cleanup="passed", t=T + 701)
    return [
        header,
        StepStarted(step="up", type="wait_healthy", t=T + 100),
        end,
        EvidenceSaved(step="up", file="evidence/up/stacks.txt", bytes=3),
        closing,
    ]


def write(root: Path, events: list[Any], run: str = RUN) -> Path:
    """The folder of a run below a state home."""
    folder = root / "runbook" / "runs" / run
    (folder / "evidence" / "up").mkdir(parents=True)
    numbered = [msgspec.structs.replace(event, n=n) for n, event in enumerate(events)]
    (folder / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in numbered))
    return folder
