"""Each start of an engine, the faults in it, and the verdicts that are right."""

from __future__ import annotations

from typing import NamedTuple

from tests.real.faults import outside
from tests.real.faults.outside import Act, Around, kill, plain, stop

SLOWEST_DEATH_S, SLOWEST_STOP_S = 5.0, 45.0
"""From the fault to its verdict."""


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

    `first`: a fault that ends the start before it serves. `compiles`: without vLLM's `--enforce-eager`.
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
    return Fault(f"{victim}_stopped_{moment}", says, ("hung/stopped",), stop(victim), serving, victim, True, SLOWEST_STOP_S)


def killed(victim: str, serving: bool, named: bool = True) -> Fault:
    """SIGKILL. A main process has no name in a verdict: it is the server."""
    moment = "serves" if serving else "loads"
    says = f"{victim.replace('_', ' ')} SIGKILL while it {moment}"
    right = ("crashed", "crashed/signal") if victim == "main" else ("crashed/rank_died",)
    return Fault(f"{victim}_killed_{moment}", says, right, kill(victim), serving, victim, victim != "main", SLOWEST_DEATH_S)


def around(name: str, says: str, *right: str) -> Fault:
    """A fault of the surroundings."""
    return Fault(name, says, right)


def starts(*workers: str, extra: tuple[Start, ...] = ()) -> tuple[Start, ...]:
    """Those of any engine: of its processes, its log, its port, and what it is given of the machine."""
    everybody = ("main", *workers)
    survived = [stopped(victim, serving) for serving in (False, True) for victim in everybody]
    renamed = Fault("log_renamed", "its log gets another name while it loads", ("passed",), outside.rename_log)
    truncated = Fault("log_truncated", "its log is truncated while it loads", ("passed",), outside.truncate_log)
    full = Fault("disk_full", "the disk of its log is full while it loads", ("passed",), outside.fill_disk)
    taken = Fault("port_taken_after", "another server takes its port while it loads", ("wrong_server",), outside.take_port)
    return (
        Start((*survived, killed("main", True))),
        *(Start((killed(victim, True),)) for victim in workers),
        *(Start((killed(victim, False),)) for victim in everybody),
        Start((renamed,)),
        Start((truncated,)),
        Start((full,), outside.small_disk),
        Start((around("port_taken_before", "its port is another server's already", "wrong_server"),), outside.port_taken),
        Start((taken,)),
        Start((around("memory_limit", "1000 MiB of memory for all its processes", "crashed/oom_host"),), outside.memory_limit),
        Start((around("asked", "its wrapper asks, and nobody types", "hung/stdin"),), outside.asked),
        Start((around("slow_weights", "weights come at 64 KiB/s", "passed"),), outside.slow_disk),
        Start((around("cores_loaded", "four busy processes on the two cores", "passed"),), outside.loaded_cores),
        Start((around("cold_bytecode", "no Python module was compiled before", "passed"),), outside.cold_bytecode),
        *extra,
    )


COMPILES = Start((around("compile_cold", "it compiles, with an empty cache", "passed"),), compiles=True)
STARTS = {
    "sglang": starts("scheduler", "detokenizer"),
    "vllm": starts("engine_core", "worker", extra=(COMPILES,)),
}
