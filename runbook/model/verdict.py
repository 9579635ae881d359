"""Verdict words, kinds, exit codes: closed and public sets. Sentences are for people, code compares words."""

from __future__ import annotations

from typing import Any

import msgspec

EXIT_CODES: dict[str, int] = {
    "passed": 0,
    "failed": 1,
    "invalid": 2,
    "hung": 3,
    "slow": 4,
    "crashed": 5,
    "unreachable": 6,
    "wrong_check": 7,
    "wrong_server": 7,
    "invalid_experiment": 7,
    "resource_held": 8,
    "refused": 8,
    "undecided": 9,
    "interrupted": 130,
    "error": 70,
}
EXIT_TERMINATED = 143
EXIT_HUNG_UP = 129
INTERRUPTED_BY = {"SIGTERM": EXIT_TERMINATED, "SIGHUP": EXIT_HUNG_UP}
"""Exit codes of the verdict interrupted, where they are not its own 130."""
EXIT_STILL_RUNNING = 75

WORST_FIRST = (
    "error",
    "crashed",
    "hung",
    "wrong_server",
    "wrong_check",
    "invalid_experiment",
    "resource_held",
    "refused",
    "failed",
    "unreachable",
    "slow",
    "undecided",
)
"""Order in which the verdict of a step with several hosts is chosen."""

HUNG_KINDS = frozenset(
    "deadlock blocked_peer rank_desync rank_missing spin livelock io_blocked child_dead stale_lock stdin log_pipe"
    " stopped driver unsatisfiable".split()
)
CRASHED_KINDS = frozenset("oom_gpu oom_host port_in_use own_timer config rank_died gpu_lost exception signal".split())
SLOW_KINDS = frozenset({"on_track", "late", "crawling"})
CONFIDENCE = ("proven", "strong", "likely")

UNKNOWN_VERDICTS = frozenset({"undecided", "unreachable", "slow"})
CERTAIN_VERDICTS = frozenset({"hung", "crashed", "wrong_check", "wrong_server", "invalid_experiment", "refused"})
"""A wait ends early on these."""


def status_of(verdict: str) -> str:
    """The step status that goes with a verdict: unknown for undecided, unreachable, slow; else passed or failed."""
    if verdict == "passed":
        return "passed"
    return "unknown" if verdict in UNKNOWN_VERDICTS else "failed"


def worst(verdicts: list[str]) -> str:
    """The verdict of a step that ran on several hosts."""
    for word in WORST_FIRST:
        if word in verdicts:
            return word
    return "interrupted" if "interrupted" in verdicts else "passed"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One observation that a verdict rests on. `points_to` is a verdict word or "nothing"."""

    signal: str
    value: Any
    unit: str = ""
    window_s: float | None = None
    points_to: str = "nothing"


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """The process or rank that a verdict names."""

    host: str = ""
    pid: int | None = None
    rank: int | None = None
    title: str = ""
    note: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something noticed on the way that decides nothing by itself. `code` is stable, `text` is for people."""

    code: str
    text: str
    step: str | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its evidence: the shape of `diagnose --json`.

    `rule` is the id of the rule that fired; `blind` lists what could not be seen and why; `next` the cheapest next looks.
    Times are seconds; `progress` maps a signal to its rate in words ("weights": "12/22 shards, 1.9GiB/s").
    """

    verdict: str
    rule: str
    reason: str
    kind: str | None = None
    confidence: str | None = None
    phase: str | None = None
    progress: dict[str, Any] = {}
    eta_s: float | None = None
    quiet_s: float | None = None
    culprit: Culprit | None = None
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    blind: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    limited_by: str | None = None
