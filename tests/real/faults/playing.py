"""Plays one start: a run of the real command on a lab, hurt from outside at its moments, and how each wait of it ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from runbook.engine.journal import load_events
from runbook.model.event import Event, StepEnded, StepStarted, Suspected
from tests.e2e.cli import Outcome, runbook, start
from tests.real import engines
from tests.real.faults.outside import Scene
from tests.real.faults.table import Fault, Start
from tests.real.looking import free_port
from tests.real.place import real_dir
from tests.support.waiting import until

LOAD_S = 1200
SEEN_S = 3.0
"""So long a victim has had its name when it is hurt: `runbook` looks every other second, and what nobody saw alive cannot be missed."""
BOX = {"load": "15m", "serving": "90s"}
GO_ON = ["failed", "slow", "hung", "crashed", "undecided", "wrong_server", "wrong_check"]


class Struck(NamedTuple):
    """When the fault was made, unix seconds, and whom it hit."""

    t: float
    pid: int | None


class Ended(NamedTuple):
    """How a fault was answered. `after_s`: from the fault, or from the launch when it was there before; `left`: what the run left behind."""

    fault: Fault
    verdict: str
    rule: str
    culprit: str
    after_s: float
    named: bool
    left: int
    suspected: tuple[str, ...]
    reason: str

    @property
    def right(self) -> bool:
        """The verdict, whom it names, in time, and nothing left."""
        late = self.fault.within_s is not None and self.after_s > self.fault.within_s
        return self.verdict in self.fault.right and (self.named or not self.fault.named) and not late and self.left == 0


def play(state: Path, engine_name: str, one: Start) -> list[Ended]:
    """Each of its faults, in order."""
    folder = real_dir() / "faults" / engine_name / one.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    port = free_port()
    scene = Scene(state, _engine(engine_name, port, one), port)
    with one.around(scene) as changes:
        changed = scene.engine._replace(command=[*changes.words, *scene.engine.command], env=scene.engine.env | changes.env)
        path = engines.playbook(
            folder.with_suffix(".yaml"), changed, [*changes.after, *_steps(state, one)], changes.before, log=changes.log
        )
        child = start("run", path, "--json", "--no-suspend", "--out", folder, state=state)
        try:
            struck = [_strike(fault, scene, folder, child) for fault in one.faults]
            out, err = child.communicate(timeout=LOAD_S)
        finally:
            scene.undo()
            if child.poll() is None:
                child.terminate()
                child.communicate(timeout=120)
    left = len(Outcome(child.returncode, out, err).json["left_behind"]) + len(_alive(state))
    return [_ended(fault, when, left, load_events(folder)) for fault, when in zip(one.faults, struck, strict=True)]


def _engine(name: str, port: int, one: Start) -> engines.Engine:
    return (
        engines.sglang(port) if name == "sglang" else engines.vllm(port, "draft_hidden_ids", *([] if one.compiles else ["--enforce-eager"]))
    )


def _steps(state: Path, one: Start) -> list[dict[str, Any]]:
    """A wait for each fault while it loads; then, for each while it serves, a gate that opens when the fault was made, and a look."""
    steps: list[dict[str, Any]] = []
    for fault in one.faults:
        if fault.serving:
            gate = _gate(state, fault)
            gate.unlink(missing_ok=True)
            if not any("gate" in step.get("id", "") for step in steps):
                steps.append({"id": "up", "wait_healthy": {"server": "server", "timeout": BOX["load"]}})
            steps.append({"id": f"{fault.name}_gate", "run": {"shell": f"until [ -e {gate} ]; do sleep 0.05; done", "timeout": "2m"}})
            look = {"diagnose": {"server": "server", "timeout": BOX["serving"]}}
        else:
            look = {"wait_healthy": {"server": "server", "timeout": BOX["load"]}}
        steps.append({"id": fault.name, **look, "ignore_errors": GO_ON})
    return steps


def _gate(state: Path, fault: Fault) -> Path:
    return state / f"{fault.name}.go"


def _strike(fault: Fault, scene: Scene, folder: Path, child: subprocess.Popen[str]) -> Struck | None:
    """Make the fault at its moment, and undo it when its wait has ended. None: the run ended before, or there is nothing to do."""
    if fault.act is None:
        return None
    begins = f"{fault.name}_gate" if fault.serving else fault.name
    until(
        lambda: child.poll() is not None or (_reached(folder, StepStarted, begins) and scene.known_s(fault.victim) > SEEN_S),
        LOAD_S,
        every=0.5,
    )
    if child.poll() is not None:
        return None
    scene.log = Path(next(event for event in _events(folder) if isinstance(event, StepEnded) and event.step == "server").result["log"])
    fault.act(scene)
    struck = Struck(time.time(), scene.hurt.pid if scene.hurt else None)
    _gate(scene.state, fault).touch()
    until(lambda: child.poll() is not None or _reached(folder, StepEnded, fault.name), LOAD_S, every=0.5)
    scene.undo()
    return struck


def _alive(state: Path) -> list[str]:
    """Titles of what still runs on the lab."""
    return [row["title"] for row in json.loads(runbook("lab", "status", "--json", state=state).out)["processes"]]


def _events(folder: Path) -> list[Event]:
    return load_events(folder) if (folder / "events.jsonl").exists() else []


def _reached(folder: Path, kind: type[StepStarted] | type[StepEnded], step: str) -> bool:
    return any(isinstance(event, kind) and event.step == step for event in _events(folder))


def _ended(fault: Fault, struck: Struck | None, left: int, events: list[Event]) -> Ended:
    """What the wait or the look said; a launch that was refused, or a start that never served, speaks for itself."""
    ends = [event for event in events if isinstance(event, StepEnded) and event.part == "main"]
    launch = next(event for event in ends if event.step == "server")
    told = next((event for event in ends if event.step == fault.name and event.verdict is not None), ends[-1])
    told = launch if launch.verdict != "passed" else told
    culprit = told.diagnosis.culprit if told.diagnosis else None
    return Ended(
        fault,
        f"{told.verdict}/{told.kind}" if told.kind else str(told.verdict),
        told.diagnosis.rule if told.diagnosis else "",
        culprit.title if culprit else "",
        told.t - (launch.t - launch.seconds if struck is None else struck.t),
        bool(culprit and struck and culprit.pid == struck.pid),
        left,
        tuple(sorted({event.kind for event in events if isinstance(event, Suspected) and event.kind})),
        told.reason,
    )
