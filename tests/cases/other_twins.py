"""Twins of the cases that are dead, wrongly checked or held: the same surface, and nothing is wrong."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from runbook.model.sample import Blind, CheckSample, EngineSample, ProcessSample, Sample, Seen
from tests.cases.telling import MIB, T0, Told, answered, gpu, proc
from tests.cases.twins import processes, works


def changed(story: Told, change: Any, **question: Any) -> Told:
    """A story with some sources of each look told otherwise."""
    return story._replace(
        samples=[replace(one, **change(one, one.t - T0)) for one in story.samples], question=replace(story.question, **question)
    )


def restarted(title: str, pid: int, rank: int | None = None) -> Any:
    """The worker that vanished is there again as another process, and tokens come."""

    def change(sample: Sample, second: float) -> dict[str, Any]:
        rows = sample.processes.value if isinstance(sample.processes, Seen) else ()
        again = () if second < 30 else (works(proc(pid, title, ppid=100, rank=rank, age_s=second - 29), second),)
        return {
            "processes": Seen((*rows, *again)),
            "engine": Seen(EngineSample(tokens=900 + int(second) * 5, running=1, waiting=0)),
            "log": _without(sample, "died"),
        }

    return change


def _without(sample: Sample, word: str) -> Any:
    """The log without the lines that say so."""
    if not isinstance(sample.log, Seen):
        return sample.log
    return Seen(replace(sample.log.value, lines=tuple(line for line in sample.log.value.lines if word not in line)))


def zombie_is_a_helper(sample: Sample, second: float) -> dict[str, Any]:
    """The zombie was a helper of the start; all ranks work."""

    def change(one: ProcessSample) -> ProcessSample:
        if one.pid == 104:
            return replace(one, title="sh -c nvidia-smi", rank=None, exit_code=0)
        return works(one, second) if one.rank is not None else one

    rows = processes(sample, change)
    fourth = works(proc(105, "sglang::scheduler_TP3", ppid=100, rank=3), second)
    return {"processes": Seen((*rows.value, fourth)), "log": _quiet_of_faults(sample)}


def _quiet_of_faults(sample: Sample) -> Any:
    if not isinstance(sample.log, Seen):
        return sample.log
    return Seen(
        replace(
            sample.log.value, lines=tuple(line for line in sample.log.value.lines if "Watchdog" not in line and "terminate" not in line)
        )
    )


def tool_stutters(sample: Sample, second: float) -> dict[str, Any]:
    """The GPU tool gave no answer once; all eight cards are there again, and the kernel says nothing."""
    cards = Seen(tuple(gpu(n, used=40_000 * MIB, utilisation=90) for n in range(8)))
    return {
        "gpus": Blind("nvidia-smi: no answer in 60 s") if second == 30 else cards,
        "kernel": Seen(()),
        "processes": processes(sample, lambda one: works(one, second)),
    }


def loading_answer(sample: Sample, second: float) -> dict[str, Any]:
    """The server itself says 503 while it starts, and reads its weights."""
    main = proc(title="llama-server -m m", run_s=second, switches=int(second) * 9, read=int(second) * 90 * MIB)
    return {
        "check": answered(503, b'{"error":{"message":"Loading model","code":503}}'),
        "processes": Seen((main,)),
        "log": Seen(replace(sample.log.value, lines=())),
    }


def nobody_listens_yet(sample: Sample, second: float) -> dict[str, Any]:
    """Refused, and no process listens anywhere: it still loads."""
    main = proc(title="vllm serve m", run_s=second, switches=int(second) * 9, read=int(second) * 90 * MIB)
    return {"listeners": Seen(()), "processes": Seen((main,)), "log": Seen(replace(sample.log.value, lines=()))}


def says_ok(sample: Sample, second: float) -> dict[str, Any]:
    """A body after all."""
    check = CheckSample(
        url="http://127.0.0.1:30000/health", outcome="answer", latency_s=1.0, status=200, body_bytes=2, body_head="ok", matched=True
    )
    return {"check": Seen(check)}


def holder_leaves(sample: Sample, second: float) -> dict[str, Any]:
    """The driver gives the memory back some time after the process is gone."""
    return {"gpus": Seen((gpu(used=101_380 * MIB if second < 20 else 4 * MIB, utilisation=0),))}


TWINS: dict[str, tuple[Any, set[str]]] = {
    "C-25": (restarted("VLLM::Worker_TP0", 402, 0), {"passed", "slow", "undecided"}),
    "C-26": (restarted("VLLM::EngineCore", 401), {"passed", "slow", "undecided"}),
    "C-28": (zombie_is_a_helper, {"passed", "slow", "undecided"}),
    "C-32": (restarted("sglang::scheduler", 401, 0), {"passed", "slow", "undecided"}),
    "C-33": (loading_answer, {"slow"}),
    "C-35": (nobody_listens_yet, {"slow"}),
    "C-36": (says_ok, {"passed"}),
    "C-44": (holder_leaves, {"passed"}),
    "C-45": (tool_stutters, {"passed", "slow", "undecided"}),
}
"""Case: what is told otherwise, and the verdicts that are right then."""
