"""Faults made from outside in real engines, and the verdicts: python -m tests.real.faults ENGINE [NAME …] [--write]

Each start is a run on a lab of its own; the fault strikes from outside, by a signal, a limit or another process, while it loads or
when it serves. One engine at a time. Recordings stay in $REAL_DIR/faults: `runbook judge FOLDER --rules` says how each verdict came.
`--write` puts the table into the documentation. The exit status is 1 when a verdict is not one of those that are right.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from runbook.engine.journal import load_events
from runbook.model.event import PhaseReached, StepEnded, StepStarted
from tests.e2e.cli import Outcome, runbook, start
from tests.real import engines, pages
from tests.real.fault_kinds import FAULTS, STOPPED, VICTIMS, Fault, Stage
from tests.real.place import real_dir
from tests.support.waiting import until
from tests.zoo.lab import lab

LOAD_S, LOOK = 900, "90s"
GO = "go"
"""A file in the lab's home: the fault is made, the look may begin."""


class Ended(NamedTuple):
    """How a fault was answered: the verdict, whom it names, how long after the fault, and whether that is right. `folder`: its recording."""

    name: str
    says: str
    verdict: str
    culprit: str
    after_s: float | None
    right: bool
    reason: str
    folder: Path

    @property
    def row(self) -> tuple[str, ...]:
        """For the table."""
        took = "" if self.after_s is None else f"{self.after_s:.0f} s"
        return self.says, self.verdict, self.culprit or "nobody", took


def play(state: Path, engine_name: str, fault: Fault) -> Ended:
    """One start, hurt as the fault says."""
    port = free_port()
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
            stage.undo()
            if child.poll() is None:
                child.terminate()
                child.wait(60)
    return _ended(fault, Outcome(child.returncode, out, err), struck, folder)


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


def _ended(fault: Fault, outcome: Outcome, struck: float | None, folder: Path) -> Ended:
    ends = [event for event in load_events(folder) if isinstance(event, StepEnded) and event.step in ("server", "up", "look")]
    told = next((end for end in ends if end.verdict not in (None, "passed")), ends[-1])
    verdict, who = answer(str(told.verdict), told.kind, msgspec.to_builtins(told.diagnosis.culprit) if told.diagnosis else None)
    after = None if struck is None else told.t - struck
    return Ended(fault.name, fault.says, verdict, who, after, verdict in fault.right, told.reason or outcome.json["reason"], folder)


def answer(verdict: str, kind: str | None, culprit: dict[str, Any] | None) -> tuple[str, str]:
    """verdict/kind, and the name of the culprit's process."""
    who = ((culprit or {}).get("title") or "").split()
    return f"{verdict}/{kind}" if kind else verdict, f"`{who[0].rpartition('/')[2]}`" if who else ""


def stops(state: Path, engine_name: str) -> list[Ended]:
    """One start in which each process is stopped for a while, first while it loads, then while it serves, and looked at by `diagnose`.

    Before, between and after them it is looked at unhurt.
    """
    port = free_port()
    stage = Stage(state, (engine := _engine(engine_name, port, FAULTS[0])), port)
    base = real_dir() / "faults" / engine_name
    base.mkdir(parents=True, exist_ok=True)
    path = engines.playbook(base / "stops.yaml", engine, [{"run": {"shell": "sleep 1500", "timeout": "26m"}}])
    child = start("run", path, "--json", "--no-suspend", state=state)
    try:
        looks = []
        for moment in ("load", "serving"):
            for victim in VICTIMS[engine_name]:
                until(lambda: stage.find(victim) if moment == "load" else stage.serves(), LOAD_S, every=0.5)  # noqa: B023  called at once
                looks.append(look(stage, base, moment, victim))
            looks.append(look(stage, base, moment, ""))
        return looks
    finally:
        stage.undo()
        child.terminate()
        child.communicate(timeout=120)


def look(stage: Stage, base: Path, moment: str, victim: str) -> Ended:
    """Stop it, ask, and let it go on. Without a victim: the same look at a server that is well."""
    name = f"{victim}_stopped_{moment}" if victim else f"well_{moment}"
    when = "while it loads" if moment == "load" else "while it serves"
    folder = base / name
    shutil.rmtree(folder, ignore_errors=True)
    if victim:
        stage.send(victim, signal.SIGSTOP)
    struck = time.time()
    flags = ["--port", str(stage.port), "--profile", stage.engine.profile, "--for", LOOK if victim else "20s", "--json", "--out", folder]
    out = runbook("diagnose", "lab", *flags, state=stage.state, seconds=300).out
    stage.undo()
    told = json.loads(out) if out.strip() else {"verdict": "no answer"}
    verdict, who = answer(told["verdict"], told.get("kind"), told.get("culprit"))
    right = verdict in STOPPED if victim else verdict.split("/")[0] in ("slow", "passed")
    says = f"{victim.replace('_', ' ')} SIGSTOP {when}" if victim else f"nothing, {when}"
    return Ended(name, says, verdict, who, time.time() - struck, right, told.get("reason", ""), folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(argv: Sequence[str] | None = None) -> int:
    """A line for each; what was known from before is kept in the table."""
    options = _options(argv)
    kept = real_dir() / "faults" / f"{options.engine}.json"
    known: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}
    right = True
    with lab() as state:
        for one in _all(state, options.engine, options.names):
            right = right and one.right
            sys.stdout.write(f"{'right' if one.right else 'WRONG':<6}{'  '.join(one.row)}: {one.reason[:200]}  [{one.folder}]\n")
            sys.stdout.flush()
            known[one.name] = list(one.row)
            kept.write_text(json.dumps(known, indent=1) + "\n")
    if options.write:
        pages.write_table(options.engine, list(known.values()))
    return 0 if right else 1


def _all(state: Path, engine: str, names: Sequence[str]) -> Iterator[Ended]:
    if not names or "stops" in names:
        yield from stops(state, engine)
    for fault in FAULTS:
        if engine in fault.engines and (not names or fault.name in names):
            yield play(state, engine, fault)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m tests.real.faults")
    options.add_argument("engine", choices=["sglang", "vllm"])
    options.add_argument("names", nargs="*", help="`stops`, or faults by name; all by default")
    options.add_argument("--write", action="store_true", help="put the table into the documentation")
    return options.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
