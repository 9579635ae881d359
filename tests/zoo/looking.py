"""One scenario watched as `runbook diagnose --pid` watches: attached by the real step, judged by the real rules; every sample recorded."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runbook.cli.profiles import profiles
from runbook.engine.watch import watch
from runbook.hosts.local import connect_local
from runbook.model.event import Event
from runbook.model.profile import Profile
from runbook.model.sample import Sample
from runbook.model.verdict import CERTAIN_VERDICTS, Diagnosis
from runbook.steps.attach import Attach
from runbook.steps.base import Goal, Launched
from runbook.steps.diagnose import Diagnose, State
from runbook.steps.wait_healthy import ExpectHealthy, Healthy, WaitHealthy
from tests.support.context import LocalContext
from tests.zoo.outcome import Outcome, weigh
from tests.zoo.scenario import Scenario
from tests.zoo.staging import Staged, staged

BOX_S = {"live": 80.0, "serving": 60.0, "decisive": 75.0, "frozen": 200.0, "spin": 210.0, "crash": 45.0, "check": 40.0}
"""How long is looked: at a live process in all, at a hung one from its last progress on. Longer than the verdict may take."""
SPIN_TWIN_S = 130.0
"""At a live process that looks like a spin: as long as it takes to name one."""
UNDER_LOAD = 1.5
"""So much longer on an overloaded host, where stall budgets are doubled."""
START_S = 60.0
"""A hung process has got stuck by then."""
_encode = msgspec.json.Encoder(enc_hook=float).encode


class Context(LocalContext):
    """A step's context whose events go to a file, with a time box that knows when the process got stuck."""

    def __init__(self, staged: Staged, scenario: Scenario, record: Path, box_s: float, known: dict[str, Profile]) -> None:
        super().__init__(connect_local(), staged.folder, run="", box_s=box_s, profiles=known)
        self.scenario = scenario
        self._staged, self._record = staged, record.open("wb")
        self._wall = time.time()

    def remaining_s(self) -> float:
        """Until the box ends; that of a hang begins at its last progress, or when somebody began to look."""
        if self.scenario.is_alive:
            return super().remaining_s()
        stuck = self._staged.stuck_at()
        since = max(stuck, self._wall) if stuck is not None else self._wall + START_S
        return since + self.box_s - time.time()

    def watch(self, goal: Goal) -> Diagnosis:
        """The engine's loop."""
        return watch(goal, self)

    def emit(self, event: Event) -> None:
        """One line of the recording."""
        self._record.write(_encode(event) + b"\n")

    def close(self) -> None:
        """End the helper."""
        self._record.close()
        self.host.close()


class Standing(State):
    """What `diagnose` asks. Only what is certain ends the wait here, so that a live process is looked at for the whole box."""

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """The judge's answer, kept back while it is not certain."""
        answer = super().judge(samples, now, final=final)
        return answer if final or (answer is not None and answer.verdict in ends_of(self._ctx.scenario)) else None  # type: ignore[attr-defined]


def ends_of(scenario: Scenario) -> frozenset[str]:
    """Verdicts that end the wait on a scenario: `passed` does where that is the truth."""
    return CERTAIN_VERDICTS | ({"passed"} if scenario.right == "passed" else set())


def perform(
    scenario: Scenario, seed: int, folder: Path, *, load: bool = False, most_s: float | None = None, stall_after: str = "auto"
) -> Outcome:
    """Play it, watch it, weigh the verdict. The recording stays in `folder`."""
    record = folder / f"{scenario.name}-{seed}.jsonl"
    record.with_suffix(".truth.json").unlink(missing_ok=True)
    with staged(scenario, seed) as process:
        come_late(process, scenario, seed)
        box = box_s(scenario) * (UNDER_LOAD if load else 1.0)
        known = {"generic": profiles().read("generic")}
        ctx = Context(process, scenario, record, min(box, most_s or box), known)
        try:
            began = time.time()
            answer = _watch(ctx, process, stall_after)
            return weigh(scenario, seed, answer, process, began, record)
        finally:
            ctx.close()


def box_s(scenario: Scenario) -> float:
    """How long a scenario is looked at."""
    if scenario.is_alive and scenario.pace == "spin":
        return SPIN_TWIN_S
    return BOX_S["live" if scenario.is_untold else scenario.truth if scenario.is_alive else scenario.pace]


def come_late(process: Staged, scenario: Scenario, seed: int) -> None:
    """In a third of the seeds nobody looked while it still moved."""
    rng = random.Random(f"late {scenario.name} {seed}")
    if rng.randrange(3) or scenario.truth == "crashed":
        return
    begin = time.monotonic()
    while process.stuck_at() is None and time.monotonic() - begin < (START_S if scenario.truth == "hung" else 8):
        time.sleep(0.2)
    time.sleep(rng.uniform(0.5, 5))


def _watch(ctx: Context, process: Staged, stall_after: str) -> Diagnosis:
    attached = ctx.at("server").do(Attach(pid=process.pid, profile="generic"))
    launched = ctx.launched("server")
    assert launched is not None, attached.reason
    launched = msgspec.structs.replace(launched, ranks=ctx.scenario.ranks, port=process.port or launched.port)
    ctx.at("state")
    ctx.began = ctx.clock.monotonic()
    goal = _goal(ctx, launched, stall_after)
    try:
        return ctx.watch(goal)
    finally:
        goal.close()


def _goal(ctx: Context, launched: Launched, stall_after: str) -> State | Healthy:
    if ctx.scenario.body is None:
        return Standing(ctx, Diagnose(server="server", stall_after=stall_after), launched)
    step = WaitHealthy(server="server", expect=ExpectHealthy(body=ctx.scenario.body), stall_after=stall_after)
    return Healthy(ctx, step, launched.profile, launched, f"http://127.0.0.1:{launched.port}")
