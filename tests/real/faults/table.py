"""Each start of an engine, the faults in it, and the verdicts that are right."""

from __future__ import annotations

from typing import NamedTuple

from tests.real.faults import outside
from tests.real.faults.outside import Act, Around, kill, plain, stop

SLOWEST_DEATH_S, SLOWEST_WORKER_S, SLOWEST_STOP_S = 5.0, 10.0, 45.0
"""From the fault to its verdict. A worker has to be gone for 2 s."""
GAPS: dict[tuple[str, str], str] = {}
"""Outcomes that are not right yet, by engine and fault."""


class Fault(NamedTuple):
    """`right`: verdicts that are right, as `verdict` or `verdict/kind`. `act` strikes while it loads, or when it serves (`serving`).

    `victim`: who is hurt, and who must be named when `named`. Without `act` the fault is the start's own surroundings.
    """

    name: str
    says: str
    right: tuple[str, ...]
    act: Act | None = None
    serving: bool = False
    victim: str = "main"
    named: bool = False
    within_s: float | None = None


class Start(NamedTuple):
    """One start of the engine: faults that it survives, one after the other, and at most one at the end that it does not.

    `compiles`: without vLLM's `--enforce-eager`.
    """

    faults: tuple[Fault, ...]
    around: Around = plain
    compiles: bool = False

    @property
    def name(self) -> str:
        """Of its recording."""
        return self.faults[0].name


def stopped(victim: str, serving: bool) -> Fault:
    """SIGSTOP, and SIGCONT after the verdict."""
    moment = "serves" if serving else "loads"
    says = f"{victim.replace('_', ' ')} SIGSTOP while it {moment}"
    within_s = SLOWEST_STOP_S if serving or victim == "main" else None  # while it loads, the others work on until they need this one
    return Fault(f"{victim}_stopped_{moment}", says, ("hung/stopped",), stop(victim), serving, victim, True, within_s)


def killed(victim: str, serving: bool) -> Fault:
    """SIGKILL. A main process has no name in a verdict: it is the server, and its death is told at once.

    A dead worker is reaped by its parent, which then ends in its own time. Only a look from before the death can have seen it alive, and
    names it; else the server's end is told, with the worker as the first cause in its log.
    """
    moment = "serves" if serving else "loads"
    says = f"{victim.replace('_', ' ')} SIGKILL while it {moment}"
    name = f"{victim}_killed_{moment}"
    if victim == "main":
        return Fault(name, says, ("crashed/signal",), kill(victim), serving, victim, within_s=SLOWEST_DEATH_S)
    return Fault(name, says, ("crashed/rank_died",), kill(victim), serving, victim, not serving, SLOWEST_WORKER_S)


def around(name: str, says: str, *right: str) -> Fault:
    """A fault of the surroundings."""
    return Fault(name, says, right)


def starts(first: str, second: str) -> tuple[Start, ...]:
    """Those of an engine with these two kinds of workers: of its processes, its log, its port, and what it is given of the machine."""
    everybody = ("main", first, second)
    survived = [stopped(victim, serving) for serving in (False, True) for victim in everybody]
    truncated = Fault("log_truncated", "its log is truncated while it loads", ("passed",), outside.truncate_log)
    renamed = Fault("log_renamed", "its log gets another name while it serves", ("passed",), outside.rename_log, serving=True)
    full = Fault("disk_full", "the disk of its log is full while it serves", ("passed",), outside.fill_disk, serving=True)
    return (
        Start((around("port_taken_before", "its port is another server's already", "wrong_server"),), outside.port_taken),
        Start((around("port_taken_after", "another server takes its port while it loads", "wrong_server"),), outside.port_lost),
        Start((around("asked", "its wrapper asks, and nobody types", "hung/stdin"),), outside.asked),
        *(Start((killed(victim, False),)) for victim in everybody),
        Start((around("memory_limit", "1000 MiB of memory for all its processes", "crashed/oom_host"),), outside.memory_limit),
        Start((*survived, killed("main", True))),
        Start((truncated, renamed, full), outside.small_disk),
        Start((around("slow_weights", "weights come at 64 KiB/s", "passed"), killed(second, True)), outside.slow_disk),
        Start((around("cores_loaded", "four busy processes on the two cores", "passed"), killed(first, True)), outside.loaded_cores),
        Start((around("cold_bytecode", "no Python module was compiled before", "passed"),), outside.cold_bytecode),
    )


COMPILES = Start((around("compile_cold", "it compiles, with an empty cache", "passed"),), compiles=True)
STARTS = {"sglang": starts("scheduler", "detokenizer"), "vllm": (*starts("engine_core", "worker"), COMPILES)}
