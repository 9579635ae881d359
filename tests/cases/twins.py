"""The live twin of each case that hangs: the same surface, and one thing moves. None may be called hung."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from runbook.model.sample import Absent, EngineSample, ProcessSample, Sample, Seen, SocketSample
from tests.cases.hung_stories import STORIES
from tests.cases.telling import GIB, MIB, SECOND, T0, Told, proc

Change = Callable[[Sample, float], dict[str, Any]]


def changed(case: str, change: Change) -> Told:
    """The case with some sources of each look told otherwise."""
    told = STORIES[case]()
    return told._replace(samples=[replace(one, **change(one, one.t - T0)) for one in told.samples])


def processes(sample: Sample, change: Callable[[ProcessSample], ProcessSample]) -> Any:
    """The processes of a look, each changed."""
    return Seen(tuple(change(one) for one in sample.processes.value)) if isinstance(sample.processes, Seen) else sample.processes


def works(one: ProcessSample, second: float, state: str = "R") -> ProcessSample:
    """The same process, computing."""
    main = replace(one.threads[0], state=state, run_ns=int(second * SECOND), switches=int(second) * 40, wchan="")
    return replace(one, state=state, threads=(main, *one.threads[1:]), faults=int(second) * 900)


def tokens_come(sample: Sample, second: float) -> dict[str, Any]:
    """The engine's counter of tokens moves, however slowly."""
    return {
        "engine": Seen(EngineSample(tokens=40_000 + int(second) * 3, running=2, waiting=0)),
        "processes": processes(sample, lambda one: works(one, second) if one.pid != 100 else one),
    }


def bytes_come(sample: Sample, second: float) -> dict[str, Any]:
    """Every connection receives two megabytes a second."""
    rows = sample.sockets.value if isinstance(sample.sockets, Seen) else ()
    moving = tuple(replace(one, state="ESTAB", received=int(second) * 2 * MIB, sent=int(second) * 2 * MIB, quiet_s=0.1) for one in rows)
    return {"sockets": Seen(moving), "processes": processes(sample, lambda one: works(one, second / 20, "S") if one.pid != 100 else one)}


def somebody_computes(sample: Sample, second: float) -> dict[str, Any]:
    """One of them computes, whatever the others wait for."""
    last = max(one.pid for one in sample.processes.value) if isinstance(sample.processes, Seen) else 0
    stacks = sample.stacks
    if isinstance(stacks, Seen):
        stacks = Seen(
            tuple(
                replace(one, frames=(f"repack_{one.look} (quant.py:{10 + one.look})", *one.frames[1:])) if one.pid == last else one
                for one in stacks.value
            )
        )
    return {"processes": processes(sample, lambda one: works(one, second) if one.pid == last else one), "stacks": stacks}


def compiles(sample: Sample, second: float) -> dict[str, Any]:
    """A compiler runs below the second stage."""
    compiler = proc(400 + int(second) // 30, "cicc k.cu", ppid=102, state="R", run_s=second % 30 + 1)
    return {"processes": Seen((*sample.processes.value, compiler))} if isinstance(sample.processes, Seen) else {}


def pipe_is_read(sample: Sample, second: float) -> dict[str, Any]:
    """The pipe is full now and then; the shard reads its weights meanwhile."""
    return {
        "processes": processes(
            sample,
            lambda one: replace(works(one, second / 3), io=Seen(proc(read=int(second) * 90 * MIB).io.value)) if one.pid == 101 else one,
        )
    }


def only_the_tool_is_slow(sample: Sample, second: float) -> dict[str, Any]:
    """The GPU tool takes long without sleeping in the kernel, and the processes compute."""
    tool = replace(sample.gpu_tool.value, state="S", wchan="") if isinstance(sample.gpu_tool, Seen) else Absent()
    return {
        "gpu_tool": Seen(tool) if not isinstance(tool, Absent) else tool,
        "processes": processes(sample, lambda one: works(one, second)),
        "kernel": Seen(()),
    }


def workers_come(sample: Sample, second: float) -> dict[str, Any]:
    """Another worker every twenty seconds."""
    more = tuple(
        proc(120 + n, "python worker.py", ppid=100, run_s=second - n * 20, rank=11 + n, age_s=second - n * 20)
        for n in range(int(second) // 20)
    )
    return {"processes": Seen((*sample.processes.value, *more))} if isinstance(sample.processes, Seen) else {}


def reads_a_file(sample: Sample, second: float) -> dict[str, Any]:
    """Its standard input is nothing, and it reads a checkpoint."""
    main = proc(
        title="python load.py",
        state="D",
        run_s=second / 20,
        switches=int(second) * 9,
        read=int(second) * 80 * MIB,
        rss=GIB + int(second) * 80 * MIB,
    )
    return {"processes": Seen((main,)), "log": sample.log}


def another_node_joins_later(sample: Sample, second: float) -> dict[str, Any]:
    """The same log on a cluster of two nodes: the driver speaks to daemons of its own host, and a host's GPUs are not the cluster's."""
    daemons = SocketSample(
        pid=100, local="127.0.0.1:41002", peer="127.0.0.1:6379", state="ESTAB", received=9000 + int(second) * 40, sent=9000, quiet_s=1.0
    )
    return {"sockets": Seen((daemons,))}


def others_hold_the_gpus(sample: Sample, second: float) -> dict[str, Any]:
    """A scheduler that waits until another job gives its GPUs back: it names no number."""
    if not isinstance(sample.log, Seen):
        return {}
    lines = tuple("Waiting: not enough free GPUs" for _ in sample.log.value.lines)
    return {"log": Seen(replace(sample.log.value, lines=lines))}


TWINS: dict[str, Change] = {
    "C-13": tokens_come,
    "C-14": bytes_come,
    "C-15": another_node_joins_later,
    "C-16": bytes_come,
    "C-17": pipe_is_read,
    "C-18": tokens_come,
    "C-19": somebody_computes,
    "C-20": only_the_tool_is_slow,
    "C-21": compiles,
    "C-22": tokens_come,
    "C-23": bytes_come,
    "C-24": somebody_computes,
    "C-40": workers_come,
    "C-42": only_the_tool_is_slow,
    "C-51": reads_a_file,
}  # fmt: skip
