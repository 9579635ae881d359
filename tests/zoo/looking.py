"""One scenario watched as `runbook diagnose` watches: the real helper, the engine's loop, the real judge; every sample recorded."""

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
from runbook.model.remote import LaunchState
from runbook.model.sample import Expectation, Question, Sample
from runbook.model.verdict import CERTAIN_VERDICTS, Diagnosis
from runbook.steps.base import Launched
from runbook.steps.checking import Checks
from runbook.steps.watching import ServerGoal, Watched, base_url
from tests.support.context import LocalContext
from tests.zoo.outcome import Outcome, weigh
from tests.zoo.scenario import Scenario
from tests.zoo.staging import Staged, staged

BOX_S = {"live": 100.0, "serving": 60.0, "decisive": 75.0, "frozen": 150.0, "spin": 210.0, "crash": 30.0, "check": 40.0}
"""How long is looked: at a live process in all, at a hung one from its last progress on. Longer than the verdict may take."""
START_S = 60.0
"""A hung process has got stuck by then."""
EVERY_S = 2.0
GENERIC = profiles().read("generic")
_encode = msgspec.json.Encoder(enc_hook=float).encode


class Context(LocalContext):
    """A step's context whose events go to a file, with a time box that knows when the process got stuck."""

    def __init__(self, staged: Staged, scenario: Scenario, record: Path, box_s: float) -> None:
        super().__init__(connect_local(), staged.folder, run="", box_s=box_s, profiles={"generic": GENERIC})
        self._staged, self._scenario, self._record = staged, scenario, record.open("wb")
        self._wall = time.time()

    def remaining_s(self) -> float:
        """Until the box ends; that of a hang begins at its last progress, or when somebody began to look."""
        if self._scenario.right in ("slow", "passed"):
            return super().remaining_s()
        stuck = self._staged.stuck_at()
        since = max(stuck, self._wall) if stuck is not None else self._wall + START_S
        return since + self.box_s - time.time()

    def emit(self, event: Event) -> None:
        """One line of the recording."""
        self._record.write(_encode(msgspec.structs.replace(event, t=time.time())) + b"\n")

    def close(self) -> None:
        """End the helper."""
        self._record.close()
        self.host.close()


class Standing(ServerGoal):
    """How does this process stand? Only what is certain ends the wait; `passed` does where that is the truth."""

    every_s = EVERY_S

    def __init__(self, ctx: Context, launched: Launched, scenario: Scenario, stall_after_s: float | None) -> None:
        self.profile: Profile = launched.profile
        self.watched = Watched(ctx, launched)
        self._ends = CERTAIN_VERDICTS | ({"passed"} if scenario.right == "passed" else set())
        expect = Expectation(body=scenario.body)
        base = base_url(launched, None)
        self._checks = Checks(ctx, base, "/health", expect, default_path="/health", timeout_s=10.0, interval_s=EVERY_S) if base else None
        self._question = Question(
            about="healthy" if base else "state",
            since=ctx.clock.now(),
            box_s=ctx.box_s,
            expect=expect,
            stall_after_s=stall_after_s,
            ranks=scenario.ranks,
        )

    def look(self) -> Sample:
        """A check where there is a port, then the rest."""
        check = self._checks.make() if self._checks else None
        sample = self.watched.look() if self.watched else None
        assert sample is not None
        return sample if check is None else msgspec.structs.replace(sample, check=check)

    def question(self, final: bool) -> Question:
        """The same all the time."""
        return msgspec.structs.replace(self._question, final=final)

    def judge(self, samples: Sequence[Sample], now: float, *, final: bool) -> Diagnosis | None:
        """The judge's answer, kept back while it is not certain."""
        answer = super().judge(samples, now, final=final)
        return answer if final or (answer is not None and answer.verdict in self._ends) else None

    def close(self) -> None:
        """End a check that is under way."""
        super().close()
        if self._checks:
            self._checks.close()


def perform(scenario: Scenario, seed: int, folder: Path, *, most_s: float | None = None, stall_after_s: float | None = None) -> Outcome:
    """Play it, watch it, weigh the verdict. The recording stays in `folder`."""
    record = folder / f"{scenario.name}-{seed}.jsonl"
    with staged(scenario, seed) as process:
        _come_late(process, scenario, seed)
        box = BOX_S[scenario.truth if scenario.right in ("slow", "passed") else scenario.pace]
        ctx = Context(process, scenario, record, min(box, most_s or box))
        try:
            began = time.time()
            answer = _watch(ctx, process, scenario, stall_after_s)
            return weigh(scenario, seed, answer, process, began, record)
        finally:
            ctx.close()


def _come_late(process: Staged, scenario: Scenario, seed: int) -> None:
    """In a third of the seeds nobody looked while it still moved."""
    rng = random.Random(seed)
    if rng.randrange(3) or scenario.truth == "crashed":
        return
    begin = time.monotonic()
    while process.stuck_at() is None and time.monotonic() - begin < (START_S if scenario.truth == "hung" else 8):
        time.sleep(0.2)
    time.sleep(rng.uniform(0.5, 5))


def _watch(ctx: Context, process: Staged, scenario: Scenario, stall_after_s: float | None) -> Diagnosis:
    mark = ctx.host.marks([str(process.log)])[str(process.log)]
    state = LaunchState(
        id="server",
        pid=process.pid,
        start=process.start,
        sid=process.pid,
        log=str(process.log),
        log_inode=mark.inode,
        log_offset=0,
        argv=(),
        cwd=str(process.folder),
        interpreter="",
        started=ctx.clock.now(),
    )
    launched = Launched(step="server", host="local", state=state, profile=GENERIC, port=process.port, env={}, run="", ranks=scenario.ranks)
    goal = Standing(ctx, launched, scenario, stall_after_s)
    try:
        return watch(goal, ctx)
    finally:
        goal.close()
