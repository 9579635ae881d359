"""Controllers that are killed at random moments of a run, and what becomes of it: `controller_kills` as one fault of the table."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.chaos.controller_kills import trials
from tests.chaos.frame import Outcome, Scenario

KILLS = 12


def killed(rng: random.Random, folder: Path) -> Outcome:
    """A dozen runs, each killed once or more, then resumed or cancelled."""
    began, first = time.monotonic(), rng.randrange(10_000)
    results = trials(range(first, first + KILLS), 2)
    faults = [f"{result.plan.seed}: {fault}" for result in results for fault in result.faults]
    where = ", ".join(sorted({result.where for result in results if result.where}))
    note = f"{KILLS} runs, {sum(result.kills for result in results)} kills, in {where}"
    return Outcome(not faults, "as undisturbed", time.monotonic() - began, note="; ".join([note, *faults[:3]]))


SCENARIOS = (Scenario("killed", killed),)
