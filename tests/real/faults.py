"""Faults made from outside in real engines, and the verdicts: python -m tests.real.faults ENGINE [NAME …] [--write]

Each start is a run on a lab of its own; the fault strikes from outside, by a signal, a limit or another process, while it loads or
when it serves. One engine at a time. Recordings stay in $REAL_DIR/faults: `runbook judge FOLDER --rules` says how each verdict came.
`--write` puts the table into the documentation. The exit status is 1 when a verdict is not one of those that are right.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runbook.engine.journal import load_events
from runbook.model.event import PhaseReached, StepEnded, StepStarted
from tests.e2e.cli import Outcome, start
from tests.real import engines, pages
from tests.real.fault_kinds import FAULTS, Fault, Stage
from tests.real.place import real_dir
from tests.support.waiting import until
from tests.zoo.lab import lab

LOAD_S, LOOK = 400, "90s"
GO = "go"
"""A file in the lab's home: the fault is made, the look may begin."""


class Ended(NamedTuple):
    """How a start with a fault ended: what the wait (or the look) said, whom it named, seconds from the fault to it and to the run's end."""

    engine: str
    fault: Fault
    verdict: str
    culprit: str
    after_s: float | None
    reason: str
    folder: Path

    @property
    def right(self) -> bool:
        """Whether it is one of the right answers."""
        return self.verdict in self.fault.right

    @property
    def row(self) -> tuple[str, ...]:
        """For the table."""
        took = "" if self.after_s is None else f"{self.after_s:.0f} s"
        return f"`{self.fault.name}`", self.fault.says, self.verdict, self.culprit or "nobody", took


def play(state: Path, engine_name: str, fault: Fault) -> Ended:
    """One start, hurt as the fault says."""
    port = _free_port()
    folder = real_dir() / "faults" / engine_name / fault.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    go = state / "runbook" / "lab" / "home" / GO
    go.unlink(missing_ok=True)
    engine = _engine(engine_name, port, fault)
    stage = Stage(state, engine, port)
    with fault.around(port) as wrap:
        path = engines.playbook(folder.with_suffix(".yaml"), engine._replace(command=[*wrap, *engine.command]), _steps(fault))
        child = start("run", path, "--json", "--no-suspend", "--out", folder, state=state)
        try:
            struck = _strike(fault, stage, folder, child)
            go.touch()
            out, err = child.communicate(timeout=LOAD_S)
        finally:
            fault.undo(stage)
            if child.poll() is None:
                child.terminate()
                child.wait(60)
    return _ended(engine_name, fault, Outcome(child.returncode, out, err), struck, folder)


def _steps(fault: Fault) -> list[dict[str, Any]]:
    """Wait; of a server that is hurt while it serves, look at it after that."""
    up = {"id": "up", "wait_healthy": {"server": "server", "timeout": "5m"}}
    if fault.moment != "serving":
        return [up]
    hurt = {"run": {"shell": f"until [ -e {GO} ]; do sleep 0.1; done", "timeout": "2m"}}
    return [up, hurt, {"id": "look", "diagnose": {"server": "server", "timeout": LOOK}}]


def _strike(fault: Fault, stage: Stage, folder: Path, child: subprocess.Popen[str]) -> float | None:
    """Make the fault when its moment has come; when that was, unix seconds. None when the run ended before, or there is nothing to do."""
    if fault.act is None:
        return None
    until(lambda: child.poll() is not None or _now(fault, stage, folder), LOAD_S, every=0.2)
    if child.poll() is not None:
        return None
    fault.act(stage)
    return time.time()


def _engine(name: str, port: int, fault: Fault) -> engines.Engine:
    if name == "sglang":
        return engines.sglang(port)
    return engines.vllm(port, "draft_hidden_ids", *([] if fault.compiles else ["--enforce-eager"]))


def _now(fault: Fault, stage: Stage, folder: Path) -> bool:
    """Whether its moment has come: the victim is there and the wait has begun, or it serves."""
    journal = folder / "events.jsonl"
    if not journal.exists():
        return False
    events = load_events(folder)
    if fault.moment == "serving":
        return any(isinstance(event, StepEnded) and event.step == "up" for event in events)
    waits = any(isinstance(event, StepStarted) and event.step == "up" for event in events)
    reached = not fault.phase or any(isinstance(event, PhaseReached) and event.phase == fault.phase for event in events)
    return waits and reached and (not fault.victim or stage.find(fault.victim) is not None)


def _ended(engine: str, fault: Fault, outcome: Outcome, struck: float | None, folder: Path) -> Ended:
    ends = [event for event in load_events(folder) if isinstance(event, StepEnded) and event.step in ("server", "up", "look")]
    told = next((end for end in ends if end.verdict not in (None, "passed")), ends[-1])
    found = told.diagnosis.culprit if told.diagnosis else None
    who = "" if found is None else f"rank {found.rank}" if found.rank is not None else f"`{(found.title or '').split()[0]}`"
    verdict = f"{told.verdict}/{told.kind}" if told.kind else str(told.verdict)
    return Ended(engine, fault, verdict, who, None if struck is None else told.t - struck, told.reason or outcome.json["reason"], folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(argv: Sequence[str] | None = None) -> int:
    """A line for each."""
    options = _options(argv)
    ended: list[Ended] = []
    with lab() as state:
        for fault in FAULTS:
            if options.engine in fault.engines and (not options.names or fault.name in options.names):
                ended.append(play(state, options.engine, fault))
                one = ended[-1]
                sys.stdout.write(f"{'right' if one.right else 'WRONG':<6}{'  '.join(one.row)}: {one.reason[:200]}  [{one.folder}]\n")
                sys.stdout.flush()
    kept = real_dir() / "faults" / f"{options.engine}.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    known.update({one.fault.name: [*one.row, one.right] for one in ended})
    kept.write_text(json.dumps(known, indent=1) + "\n")
    if options.write:
        pages.write_table(
            options.engine, [known[fault.name] for fault in FAULTS if fault.name in known and options.engine in fault.engines]
        )
    return 0 if all(one.right for one in ended) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m tests.real.faults")
    options.add_argument("engine", choices=["sglang", "vllm"])
    options.add_argument("names", nargs="*", help="faults; all by default")
    options.add_argument("--write", action="store_true", help="put the table into the documentation")
    return options.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
