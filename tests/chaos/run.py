"""Faults by faults: `make chaos`, or python -m tests.chaos.run [--seed 1] [--only links.] [--minutes 20] [--jobs 2] [--json FILE]

One line a fault: what became of the run, how long it took, what is left. The exit status says whether every one came out well. The
same seed makes the same faults at the same moments, as far as a machine lets it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.chaos.frame import Outcome, Scenario

MODULES = ("links", "hosts", "controllers", "lab_kills")
"""Each has SCENARIOS."""


def scenarios(only: str = "") -> list[tuple[str, Scenario]]:
    """(full name, scenario) of all modules that are there."""
    found = []
    for module in MODULES:
        if importlib.util.find_spec(f"tests.chaos.{module}") is not None:
            found += [(f"{module}.{one.name}", one) for one in importlib.import_module(f"tests.chaos.{module}").SCENARIOS]
    return [(name, one) for name, one in found if any(part in name for part in only.split(","))]


def play(name: str, scenario: Scenario, seed: int, number: int) -> Outcome | None:
    """One scenario in a folder of its own; None when it cannot be played here."""
    if why := scenario.needs():
        line(name, "skipped", "-", "", why)
        return None
    folder = Path(tempfile.mkdtemp(prefix="rbc"))
    began = time.monotonic()
    try:
        outcome = scenario.play(random.Random(f"{seed}/{name}/{number}"), folder)
    except Exception as problem:  # a fault of the scenario itself must not end the others
        last = traceback.format_exc().strip().splitlines()[-3:]
        outcome = Outcome(False, "error", time.monotonic() - began, note=f"{type(problem).__name__}: {problem} {' | '.join(last)}"[:600])
    if outcome.ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        outcome = Outcome(False, outcome.verdict, outcome.seconds, outcome.left, f"{outcome.note} (seed {seed}, {folder})")
    line(name, ("ok " if outcome.ok else "BAD ") + outcome.verdict, f"{outcome.seconds:.1f}", ", ".join(outcome.left), outcome.note)
    return outcome


def line(name: str, verdict: str, seconds: str, left: str, note: str) -> None:
    """One row of the table."""
    sys.stdout.write(f"{name:<44} {verdict:<18} {seconds:>7} s  left: {left or 'nothing':<10} {note}\n")
    sys.stdout.flush()


def main() -> int:
    """Play them; 1 when one did not come out well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--minutes", type=float, default=20, help="no scenario is begun after this time (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios side by side (%(default)s)")
    parser.add_argument("--once", action="store_true", help="each once, whatever its own count")
    parser.add_argument("--json", type=Path, help="write the table to this file too")
    options = parser.parse_args()
    wanted = [(name, one, n) for name, one in scenarios(options.only) for n in range(1 if options.once else one.repeat)]
    if not wanted:
        parser.error("no scenario has such a name")
    until = time.monotonic() + 60 * options.minutes
    outcomes: dict[str, Outcome | None] = {}
    not_played: list[str] = []

    def one(job: tuple[str, Scenario, int]) -> None:
        name, scenario, number = job
        full = f"{name}#{number}" if number else name
        if time.monotonic() > until:
            not_played.append(full)
        else:
            outcomes[full] = play(name, scenario, options.seed, number)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, wanted))
    bad = [name for name, outcome in outcomes.items() if outcome is not None and not outcome.ok]
    played = sum(outcome is not None for outcome in outcomes.values())
    sys.stdout.write(f"{played} played, {len(bad)} bad, {len(outcomes) - played} skipped, {len(not_played)} not begun in time\n")
    if options.json:
        options.json.write_text(json.dumps({name: outcome and asdict(outcome) for name, outcome in outcomes.items()}, indent=2) + "\n")
    return int(bool(bad or not_played))


if __name__ == "__main__":
    sys.exit(main())
