"""The program of a scenario's process: `main(name, role, seed, folder)`, called from a small script with an ordinary name."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

from runbook.lab import faults
from runbook.lab.faults import Stage
from tests.zoo.disguise import disguise
from tests.zoo.scenario import SCENARIOS

FAMILIES = ("stuck", "waits", "spins", "loads", "works", "ranks", "twins", "servers", "idle", "waiters", "lookalikes", "limits", "untold")
MODULES = (faults.__name__, *(f"tests.zoo.{family}" for family in FAMILIES))
"""Whose functions may stand on a stack."""
PR_SET_PDEATHSIG = 1


def collect() -> dict[str, object]:
    """All scenarios by name."""
    for family in FAMILIES:
        importlib.import_module(f"tests.zoo.{family}")
    return dict(SCENARIOS)


def main(name: str, role: str, seed: int, folder: str) -> None:
    """Play: role `inside` is watched, `outside` is not."""
    _die_with_parent()
    os.register_at_fork(after_in_child=_die_with_parent)
    collect()
    scenario = SCENARIOS[name]
    disguise([sys.modules[name] for name in MODULES], seed, Path(folder))
    stage = Stage(seed, Path(folder), _voice(seed))
    play = scenario.play if role == "inside" else scenario.outside
    assert play is not None, f"{name} has no {role}"
    play(stage)


def _die_with_parent() -> None:
    """Nothing outlives the runner, however it ends. (The signal comes when the parent's thread ends: fork from the main thread only.)"""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _voice(seed: int) -> logging.Logger:
    """How this seed's log lines look."""
    whole, short = "%Y-%m-%d %H:%M:%S", "%m-%d %H:%M:%S"
    styles = (
        ("%(message)s", whole),
        ("[%(asctime)s] %(message)s", whole),
        (f"INFO %(asctime)s [engine.py:{seed % 900}] %(message)s", short),
        ("%(asctime)s,%(msecs)03d - %(message)s", whole),
    )
    return faults.speaker(*styles[seed % 4] if seed >= 0 else styles[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
