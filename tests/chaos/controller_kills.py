"""Kill -9 the controller at random moments of a whole run, go on with it, and look whether it ends as it would have.

    python -m tests.chaos.controller_kills [--kills 200] [--seed 1] [--at-once 6]

Each trial is a run of its own on target `local`: end a leftover, patch a module with a probe, launch a small real server that imports it,
wait until it is healthy, POST, look at probe, answer and log; at the end kill and restore. From its seed come the moment, whether `resume` is
killed as well, and whether it is cancelled in place of resumed. What has to hold:

    verdict    that of the undisturbed run; of a cancelled one, interrupted
    journal    every line is an event, the first one the header; every step and action has its end
    once       the server was started once and asked once, but where `--redo` was asked for
    nothing    the file has its bytes, mode and time; no process, no file of the run on the host
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from runbook.engine.journal import decode_event
from runbook.model.event import ActionEnded, ActionStarted, RunStarted, StepEnded, StepStarted
from tests.chaos.seeded import main

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "tests" / "data" / "servers" / "probed_server.py"
END_S = 90.0
TIME_NS = 10**18
MODULE = "def answer(question):\n    reply = question * 2\n    return reply\n"


class Plan(NamedTuple):
    """One trial: `share` of a run's usual length after its header comes the first kill, below 0 before that; `more` are kills of resumes."""

    seed: int
    share: float
    more: tuple[float, ...]
    ends_by: str


class Result(NamedTuple):
    """`where`: the step that was in flight. `faults`: what did not hold."""

    plan: Plan
    where: str
    kills: int
    redone: bool
    verdict: str | None
    faults: tuple[str, ...]


def plan(seed: int) -> Plan:
    """The trial of a seed."""
    rng = random.Random(seed)
    more = tuple(rng.uniform(0, 1.1) for _ in range(rng.choice((0, 0, 0, 1, 2))))
    return Plan(seed, rng.uniform(-0.08, 1.02), more, "cancel" if rng.random() < 0.12 else "resume")


def playbook(folder: Path, port: int) -> dict[str, Any]:
    """The demo's steps, without torch."""
    command = [sys.executable, str(SERVER), "--port", str(port), "--folder", str(folder)]
    steps = [
        {"kill": {"match": {"port": port}}},
        {
            "id": "taps",
            "patch": {
                "for": "server",
                "file": str(folder / "part.py"),
                "probes": [{"at": "answer", "where": "entry", "show": ["question"]}],
            },
        },
        {"id": "server", "launch": {"command": command, "port": port, "settle": "200ms"}},
        {"id": "up", "wait_healthy": {"server": "server", "timeout": "30s", "interval": "100ms"}},
        {"id": "chat", "request": {"server": "server", "post": "/chat", "json": {}, "timeout": "20s"}},
        {"id": "seen", "expect_probe": {"probe": "taps", "since": "chat"}},
        {"id": "right", "assert": ["steps.chat.json.answer == 42", "steps.seen.hits[0].question == 21"]},
        {"id": "line", "grep": {"log": "server", "pattern": "answered (?P<n>\\d+)", "since": "chat"}},
    ]
    always = [{"kill": {"step": "server"}}, {"restore": "taps"}]
    return {"runbook": 1, "name": "kills", "hosts": {"box": "local"}, "collect": "off", "steps": steps, "always": always}


class Trial:
    """One run in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site, self.state, self.run = folder, folder / "site", folder / "state", folder / "run"
        self.leases = folder / "leases"
        self.site.mkdir(parents=True)
        self.leases.mkdir(mode=0o700)
        self.file = self.site / "part.py"
        self.file.write_text(MODULE)
        self.file.chmod(0o640)
        os.utime(self.file, ns=(TIME_NS, TIME_NS))
        self.original = self.look()
        self.book = folder / "play.yaml"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.book.write_text(json.dumps(playbook(self.site, probe.getsockname()[1])))
        self.kills = 0

    def command(self, *args: str) -> subprocess.Popen[str]:
        """`runbook …` in a session of its own."""
        argv = [sys.executable, "-m", "runbook.cli.main", *args]
        env = {**os.environ, "XDG_STATE_HOME": str(self.state), "RUNBOOK_LEASES": str(self.leases), "PYTHONPATH": str(ROOT)}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, env=env, text=True, start_new_session=True, **pipes)

    def start(self) -> subprocess.Popen[str]:
        """The run itself."""
        return self.command("run", str(self.book), "--json", "--out", str(self.run))

    def killed(self, child: subprocess.Popen[str], after_s: float) -> bool:
        """-9 after that time; False when it had ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(after_s)
            return False
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        self.kills += 1
        return True

    def ended(self, child: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
        """Exit code, object (empty when there is none), stderr."""
        try:
            out, err = child.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            return -1, {}, f"did not end in {END_S} s\n{err}"
        return child.returncode, json.loads(out) if out.strip().startswith("{") else {}, err

    def look(self) -> tuple[str, int, int]:
        """Hash, mode, time."""
        status = self.file.stat()
        return hashlib.sha256(self.file.read_bytes()).hexdigest(), status.st_mode, status.st_mtime_ns

    def count(self, name: str) -> int:
        """Lines of a file of the server."""
        path = self.site / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def lines(self) -> list[bytes]:
        """The journal."""
        path = self.run / "events.jsonl"
        return path.read_bytes().splitlines(keepends=True) if path.exists() else []

    def in_flight(self) -> str:
        """The last step that had begun."""
        events = [json.loads(line) for line in self.lines() if line.endswith(b"\n")]
        begun = [one for one in events if one["event"] in ("step_started", "step_ended", "run_ended", "main_ended")]
        if not begun:
            return "before the first step"
        return begun[-1].get("step", "cleanup") if begun[-1]["event"] == "step_started" else "between steps or in cleanup"

    def processes(self) -> list[int]:
        """Whoever belongs to the trial."""
        mark, found = str(self.state).encode(), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if int(name) != os.getpid() and mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return found

    def left(self) -> list[str]:
        """Files of the run on the host, which is this machine."""
        return [str(path) for path in (self.state / "runbook-host").rglob("*") if path.is_file()]

    def sweep(self) -> None:
        """End what is left."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Usual(NamedTuple):
    """Seconds of an undisturbed run: from the process to its header, and from there to its end."""

    start_s: float
    length_s: float


def run(planned: Plan, usual: Usual) -> Result:
    """One trial."""
    with tempfile.TemporaryDirectory(prefix=f"kills-{planned.seed}-") as name:
        trial = Trial(Path(name))
        try:
            return _play(trial, planned, usual)
        finally:
            trial.sweep()


def _play(trial: Trial, planned: Plan, usual: Usual) -> Result:
    child = trial.start()
    deadline = time.monotonic() + (END_S if planned.share > 0 else usual.start_s * 0.8)
    while not trial.lines() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if not trial.killed(child, usual.length_s * max(0.0, planned.share)):
        code, answer, err = trial.ended(child)
        faults = [*_faults(trial, answer, "passed", 1), *([] if answer else [f"exit {code}: {err[-600:]}"])]
        return Result(planned, "had ended", 0, False, answer.get("verdict"), tuple(faults))
    where = trial.in_flight()
    if not any(line.endswith(b"\n") for line in trial.lines()):
        left = [*trial.processes(), *trial.left()]
        return Result(planned, where, trial.kills, False, None, tuple(f"left: {one}" for one in left))
    code, answer, err, redo = 0, {}, "", []
    if planned.ends_by == "resume":
        for share in planned.more:
            if not trial.killed(trial.command("resume", str(trial.run), "--json"), usual.start_s + usual.length_s * share):
                break
        for _ in range(3):
            code, answer, err = trial.ended(trial.command("resume", str(trial.run), "--json", *redo))
            wanted = [line for line in answer.get("next", ()) if "--redo" in line]
            if answer.get("state") != "suspended" or not wanted or redo:
                break
            redo = wanted[0].split("#")[0].split()[3:]
    else:
        code, answer, err = trial.ended(trial.command("cancel", str(trial.run), "--json"))
    wanted_verdict = "passed" if planned.ends_by == "resume" else "interrupted"
    faults = _faults(trial, answer, wanted_verdict, 2 if redo else 1)
    if faults and not answer:
        faults.append(f"exit {code}: {err[-600:]}")
    return Result(planned, where, trial.kills, bool(redo), answer.get("verdict"), tuple(faults))


def _faults(trial: Trial, answer: dict[str, Any], verdict: str, most: int) -> list[str]:
    """All that does not hold at the end."""
    # A run that had passed but for its last words may be cancelled: it has ended then, and says so.
    found = [] if answer.get("verdict") in (verdict, "passed") else [f"ended {answer.get('verdict')}: {answer.get('reason')}"]
    found += _journal(trial)
    if trial.look() != trial.original:
        found.append("the file is not as it was")
    if trial.count("starts") > 1:
        found.append(f"started {trial.count('starts')} times")
    if trial.count("requests") > most:
        found.append(f"asked {trial.count('requests')} times")
    listed = " ".join(answer.get("left_behind", ()))
    deadline = time.monotonic() + 5
    while trial.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    found += [f"pid {pid} is left" for pid in trial.processes() if str(pid) not in listed]
    return found + [f"{path} is left" for path in trial.left() if path not in listed]


def _journal(trial: Trial) -> list[str]:
    found, open_ones = [], Counter()
    for number, line in enumerate(trial.lines(), 1):
        try:
            event = decode_event(line)
        except Exception as problem:  # whatever it is, it is what the trial is about
            return [f"line {number} of the journal: {problem}"]
        if (number == 1) != isinstance(event, RunStarted):
            found.append(f"line {number}: the header is the first line, and no other")
        if event.n != number - 1:
            found.append(f"line {number} says that it is {event.n}")
        match event:
            case StepStarted() | StepEnded():
                key = (event.step, event.host, event.attempt)
                open_ones[key] = max(0, open_ones[key] + (1 if isinstance(event, StepStarted) else -1))
            case ActionStarted() | ActionEnded():
                open_ones[event.id] += 1 if isinstance(event, ActionStarted) else -1
    return found + [f"{key} has no end" for key, count in open_ones.items() if count]


def calibrate(at_once: int) -> Usual:
    """Of undisturbed runs, with as many side by side as later. Raises when one does not pass."""

    def one(_: int) -> Usual:
        with tempfile.TemporaryDirectory(prefix="kills-calm-") as name:
            trial = Trial(Path(name))
            began = time.time()
            code, answer, err = trial.ended(trial.start())
            if answer.get("verdict") != "passed":
                raise RuntimeError(f"the undisturbed run ended {answer.get('verdict')} (exit {code}): {answer.get('reason')}\n{err}")
            times = [json.loads(line)["t"] for line in trial.lines()]
            return Usual(times[0] - began, times[-1] - times[0])

    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(one, range(at_once)))
    return Usual(*map(statistics.median, zip(*found, strict=True)))


def trials(seeds: range, at_once: int) -> list[Result]:
    """All of them, several side by side."""
    usual = calibrate(at_once)
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda seed: run(plan(seed), usual), seeds))


def table(results: list[Result]) -> str:
    """Markdown: a row for each place of the first kill, then what did not hold."""
    heads = ["in flight at the first kill", "trials", "kills", "resumed", "of them with --redo", "cancelled", "same verdict", "faults"]
    rows = [heads, ["---"] * len(heads)]
    places = sorted({result.where for result in results})
    for place in [*places, "all"]:
        some = [result for result in results if place in (result.where, "all")]
        rows.append([place, *map(str, _counts(some))])
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), *(f"seed {one.plan.seed}: {one}" for one in results if one.faults)])


def _counts(some: list[Result]) -> list[int]:
    by = Counter(result.plan.ends_by for result in some if result.kills)
    same = sum(not any(fault.startswith("ended") for fault in result.faults) for result in some)
    kills = sum(result.kills for result in some)
    return [
        len(some),
        kills,
        by["resume"],
        sum(result.redone for result in some),
        by["cancel"],
        same,
        sum(bool(one.faults) for one in some),
    ]


if __name__ == "__main__":
    raise SystemExit(main(__doc__, trials, table, kills=200, at_once=6))
