"""Kill -9 controller, helper and keeper at random points of patch -> restore, and look whether every file comes back whole.

    python -m tests.chaos.patch_kills [--kills 500] [--seed 1] [--at-once 8]

Each trial is a run of its own on target `local`, in its own state folder, with a tiny module and `undo_after` between 1 and 3 s. From its seed
come the victims, the phase and the moment in it. What has to hold:

    whole      at any moment the file has its original bytes, or those that the undo record announced before the change
    back       bytes, mode and time are the original's again: at the latest SLACK_S after `undo_after`, by the controller or the keeper;
               with both of them dead, the record is on the host's list and `runbook restore --host` gives the file back
    nothing    no open record, no temporary file beside the module, no process of the trial
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.chaos.seeded import main

ROOT = Path(__file__).resolve().parents[2]
SLACK_S = 5.0
"""Beyond `undo_after`: the renewal just before the kill, and a keeper that waits for a processor among all the others."""
END_S = 60.0
MODULE = "def answer(question):\n    reply = question * 2\n    return reply\n" + "".join(f"\n\nNAME_{n} = {n}\n" for n in range(40))
TIME_NS = 10**18
PLAYBOOK = """
runbook: 1
hosts: {{box: local}}
steps:
  - id: look
    patch: {{file: {file}, undo_after: {undo_after:.3f}s, probes: [{{at: answer, where: entry, show: [question]}}]}}
  - id: hold
    run: {{shell: sleep 0.3}}
  - id: back
    restore: look
"""
VICTIMS = (("controller",), ("helper",), ("keeper",), ("controller", "keeper"), ("helper", "keeper"))
WEIGHTS = (30, 20, 25, 15, 10)
PHASES = {  # name -> (text of the event that begins it, text of the one that ends it)
    "keeper start": ('"event":"host_connected"', '"action":"patch"'),
    "write": ('"action":"patch"', '"event":"registered"'),
    "hold": ('"step":"hold"', '"step":"back"'),
    "restore": ('"action":"restore"', '"how":"restored"'),
    "retire": ('"action":"retire"', '"event":"run_ended"'),
}
PHASE_WEIGHTS = (15, 25, 25, 25, 10)


class Plan(NamedTuple):
    """One trial: who is killed, and when: `share` of the phase's usual length after its begin."""

    seed: int
    victims: tuple[str, ...]
    phase: str
    share: float
    undo_after_s: float


class Result(NamedTuple):
    """`back_by`: itself (never changed, or the run went on), controller, keeper, restore --host, nobody. `faults`: what did not hold."""

    plan: Plan
    killed: tuple[str, ...]
    changed: bool
    back_by: str
    back_after_s: float
    faults: tuple[str, ...]


def plan(seed: int) -> Plan:
    """The trial of a seed."""
    rng = random.Random(seed)
    [victims] = rng.choices(VICTIMS, WEIGHTS)
    [phase] = rng.choices(list(PHASES), PHASE_WEIGHTS)
    return Plan(seed, victims, phase, rng.uniform(0, 1.2), rng.uniform(1, 3))


class Trial:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, undo_after_s: float) -> None:
        self.home = folder / "site"
        self.state = folder / "state"
        self.file = self.home / "part.py"
        self.journal = folder / "run" / "events.jsonl"
        self.leases = folder / "leases"
        self.home.mkdir(parents=True)
        self.leases.mkdir(mode=0o700)
        self.file.write_text(MODULE)
        self.file.chmod(0o640)
        os.utime(self.file, ns=(TIME_NS, TIME_NS))
        self.original = self.look()
        self.torn = 0
        playbook = folder / "play.yaml"
        playbook.write_text(PLAYBOOK.format(file=self.file, undo_after=undo_after_s))
        self.controller = self.command("run", str(playbook), "--json", "--out", str(folder / "run"))

    def command(self, *args: str) -> subprocess.Popen[bytes]:
        """`runbook …`, its output thrown away but for stdout."""
        argv = [sys.executable, "-m", "runbook.cli.main", *args]
        env = {**os.environ, "XDG_STATE_HOME": str(self.state), "RUNBOOK_LEASES": str(self.leases), "PYTHONPATH": str(ROOT)}
        out = self.home.parent / f"out-{args[0]}"
        with out.open("wb") as stdout:
            return subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True
            )

    def look(self) -> tuple[bytes, int, int]:
        """Bytes, mode, time."""
        status = self.file.stat()
        return self.file.read_bytes(), status.st_mode, status.st_mtime_ns

    def is_original(self) -> bool:
        """Whether the file is as it was; every look also checks that it is whole."""
        found = self.look()
        if found[0] != self.original[0] and hashlib.sha256(found[0]).hexdigest() not in self.announced():
            self.torn += self.look()[0] == found[0]  # else the record was closed between the two reads
        return found == self.original

    def announced(self) -> set[str]:
        """Hashes of patched bytes that a record names."""
        return {record["sha256_after"] for record in self.records()}

    def records(self) -> list[dict]:
        """The undo records on the host."""
        found = []
        for path in (self.state / "runbook-host" / "runs").glob("*/undo/*/record.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_bytes()))
        return found

    def pid(self, who: str) -> int | None:
        """A victim's process, when it is there."""
        if who == "controller":
            return self.controller.pid if self.controller.poll() is None else None
        if who == "helper":
            return next(iter(_children(self.controller.pid)), None)
        for path in (self.state / "runbook-host" / "runs").glob("*/keeper.json"):
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(path.read_bytes())
                return record["pid"] if _runs(record["pid"]) else None
        return None

    def said(self, text: str) -> bool:
        """Whether the journal has this text."""
        return self.journal.is_file() and text.encode() in self.journal.read_bytes()

    def wait(self, condition: Callable[[], object], limit_s: float, every_s: float = 0.005) -> bool:
        """Until the condition holds; False when it did not in time."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(every_s)
        return True

    def kill(self, victims: tuple[str, ...]) -> tuple[str, ...]:
        """-9, in the order of the names; answers who was there to be killed."""
        found = [(who, self.pid(who)) for who in victims]
        for _, pid in found:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if "controller" in victims:
            self.controller.wait()
        return tuple(who for who, pid in found if pid is not None)

    def sweep(self) -> list[int]:
        """End what is left of the trial; answers the pids."""
        mark = str(self.state)
        left = [pid for pid in _pids() if _environ_has(pid, mark)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


def run(planned: Plan, lengths: dict[str, float]) -> Result:
    """One trial, from its start to the last look."""
    with tempfile.TemporaryDirectory(prefix=f"chaos-{planned.seed}-") as name:
        trial = Trial(Path(name), planned.undo_after_s)
        try:
            begin, _ = PHASES[planned.phase]
            trial.wait(lambda: trial.said(begin) or trial.controller.poll() is not None, END_S)
            time.sleep(lengths[planned.phase] * planned.share)
            killed = trial.kill(planned.victims)
            return _watch(trial, planned, killed, time.monotonic())
        finally:
            trial.sweep()


def _watch(trial: Trial, planned: Plan, killed: tuple[str, ...], when: float) -> Result:
    """What becomes of the file after the kill."""
    changed, back_by, faults = not trial.is_original(), "itself", []
    alone = "controller" in killed and (trial.pid("keeper") is None)
    if "controller" not in killed:
        if not trial.wait(lambda: trial.controller.poll() is not None, END_S):
            faults.append("the controller did not end")
        back_by = "controller" if changed or trial.said('"action":"restore"') else "itself"
        if not trial.is_original():
            back_by = "keeper"
    elif alone:
        back_by = "itself"
        if changed or any(record["state"] == "open" for record in trial.records()):
            back_by = "restore --host"
            faults += _by_hand(trial, changed)
    elif changed or any(record["state"] == "open" for record in trial.records()):
        back_by = "keeper"
    trial.wait(lambda: trial.is_original() and not _open(trial), planned.undo_after_s + SLACK_S, 0.02)
    back_after_s = time.monotonic() - when
    if not trial.is_original():
        back_by = "nobody"
        faults.append("left changed")
    if _open(trial):
        faults.append("a record stays open")
    if trial.torn:
        faults.append("torn")
    if os.listdir(trial.home) not in (["part.py"], ["part.py", "__pycache__"]):
        faults.append(f"left beside it: {os.listdir(trial.home)}")
    # A keeper that has nothing to keep goes by itself once nobody renews it; with a controller alive it was retired.
    if "controller" not in killed and not trial.wait(lambda: trial.pid("keeper") is None, 10.0):
        faults.append("the keeper outlives its run")
    return Result(planned, killed, changed, back_by, back_after_s, tuple(faults))


def _open(trial: Trial) -> bool:
    return any(record["state"] == "open" for record in trial.records())


def _by_hand(trial: Trial, changed: bool) -> list[str]:
    """Nobody is left who would act: the host must list it, and give it back when asked."""
    trial.command("restore", "--host", "local", "--list", "--json").wait(END_S)
    listed = json.loads((trial.home.parent / "out-restore").read_bytes())["patches"]
    code = trial.command("restore", "--host", "local", "--json").wait(END_S)
    faults = [] if code == 0 else [f"restore --host ended with {code}"]
    return faults if listed or not changed else [*faults, "not listed"]


def calibrate(at_once: int) -> dict[str, float]:
    """Usual length of each phase, seconds, with as many side by side as later."""

    def one(number: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="chaos-calm-") as name:
            trial = Trial(Path(name), 60)
            trial.controller.wait(END_S)
            lines = trial.journal.read_text().splitlines()
            first = {text: next(json.loads(line)["t"] for line in lines if text in line) for pair in PHASES.values() for text in pair}
            return {phase: first[end] - first[begin] for phase, (begin, end) in PHASES.items()}

    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(one, range(at_once)))
    return {phase: statistics.median(item[phase] for item in found) for phase in PHASES}


def trials(seeds: range, at_once: int) -> list[Result]:
    """All of them, several side by side."""
    lengths = calibrate(at_once)
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda seed: run(plan(seed), lengths), seeds))


HEAD = "killed,trials,file changed then,back by itself,by the controller,by the keeper,by restore --host,longest,left changed,torn,other faults"


def table(results: list[Result]) -> str:
    """Markdown: a row for each set of processes that were there to be killed, then what did not hold."""
    heads = HEAD.split(",")
    rows = [_row(heads), "|" + "---|" * len(heads)]
    for killed in sorted({result.killed for result in results}):
        rows.append(_row(_cells(" + ".join(killed) or "nobody: it had ended", [result for result in results if result.killed == killed])))
    rows.append(_row(_cells("all", results)))
    return "\n".join([*rows, *(f"seed {result.plan.seed}: {result}" for result in results if result.faults)])


def _row(cells: list) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _cells(name: str, some: list[Result]) -> list:
    by = [sum(result.back_by == who for result in some) for who in ("itself", "controller", "keeper", "restore --host")]
    late = [result.back_after_s - result.plan.undo_after_s for result in some if result.back_by == "keeper"]
    faults = [fault for result in some for fault in result.faults]
    bad = [faults.count("left changed"), faults.count("torn"), sum(fault not in ("left changed", "torn") for fault in faults)]
    changed = sum(result.changed for result in some)
    return [name, len(some), changed, *by, f"undo_after + {max(late):.1f} s" if late else "", *bad]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return []


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _environ_has(pid: int, text: str) -> bool:
    with contextlib.suppress(OSError):
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


if __name__ == "__main__":
    raise SystemExit(main(__doc__, trials, table, kills=500, at_once=8))
