"""A long wait for a server of many ranks, event by event: it loads, then one rank is stopped and nothing moves any more."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from runbook.model.event import MainEnded, Moved, PhaseReached, Registered, RunEnded, RunStarted, SampleTaken, StepEnded, StepStarted
from runbook.model.gpu import GpuSample
from runbook.model.sample import Absent, Blind, CheckSample, IoSample, LogSample, ProcessSample, Sample, Seen, ThreadSample
from runbook.model.verdict import Culprit, Diagnosis, Evidence

BEGIN = 1_790_000_000.0
GIB = 1 << 30
LOADS_S = 1_500.0
"""After this time nothing moves."""
ODD = 5


def process(rank: int, moved: float, full: bool, stopped: bool) -> ProcessSample:
    """A rank after `moved` seconds of work."""
    run = int(moved * 3e8)
    threads = tuple(ThreadSample(tid=i, state="S", run_ns=run // (i + 1), wait_ns=0, switches=run >> 20) for i in range(20 if full else 0))
    read = int(moved * (1.9 if rank != ODD else 1.2) * GIB / 8)
    return ProcessSample(
        pid=100 + rank,
        start=1,
        ppid=99,
        state="T" if stopped and rank == ODD else "S",
        title=f"sglang::scheduler_TP{rank}",
        rss=read,
        rank=rank,
        threads=threads,
        io=Seen(IoSample(rchar=read, read_bytes=read, wchar=0)),
        mapped_weights=Seen(min(read, 64 * GIB)),
    )


def sample(t: float, number: int, ranks: int, still_after: float) -> Sample:
    """What a look after `t` seconds brings: threads and GPUs at every fifth."""
    moved, full = min(t, still_after), number % 5 == 0
    lines = () if t > still_after or number % 3 else (f"[TP{number % ranks}] Loading safetensors checkpoint shards: {number}/9999",)
    gpus = tuple(GpuSample(index=i, name="NVIDIA H200", used=int(moved * GIB / 20), total=141 * GIB) for i in range(ranks))
    return Sample(
        t=BEGIN + t,
        host="box",
        host_t=BEGIN + t,
        boot_id="b",
        server="server",
        processes=Seen(tuple(process(rank, moved, full, t > still_after) for rank in range(ranks))),
        exit=Absent("it lives"),
        log=Seen(LogSample(path="/l", inode=1, size=number * 80, offset=number * 80, end=number * 80 + 80, lines=lines)),
        check=Seen(CheckSample(url="http://x/health", outcome="refused", latency_s=0.01)),
        gpus=Seen(gpus) if full else Blind("not asked"),
    )


def events(seconds: float = 3_600.0, every_s: float = 2.0, ranks: int = 8, still_after: float = LOADS_S) -> Iterator[Any]:
    """The journal of such a run, one event after the other."""
    yield RunStarted(
        t=BEGIN - 5, format=1, run="r1", version="1", playbook="p.yaml", playbook_text="runbook: 1\n", playbook_sha256="0" * 64, name="Long", targets={}, vars={}
    )  # fmt: skip
    yield StepStarted(t=BEGIN - 4, step="server", type="launch", host="box")
    yield Registered(t=BEGIN, kind="launch", step="server", host="box", data={})
    yield StepEnded(t=BEGIN, step="server", type="launch", host="box", status="passed", verdict="passed", seconds=4.0)
    yield StepStarted(t=BEGIN, step="up", type="wait_healthy", host="box", box_s=seconds)
    for rank in range(ranks):
        yield PhaseReached(t=BEGIN + 20 + rank, step="up", server="server", phase="weights", rank=rank, label=f"TP{rank}")
    number = 0
    while (t := number * every_s) < seconds:
        yield SampleTaken(t=BEGIN + t, step="up", sample=sample(t, number, ranks, still_after))
        if number % 5 == 0:
            yield Moved(t=BEGIN + t, step="up", host="box", phase="weights", text=f"{number}/9999", elapsed_s=t)
        number += 1
    reason = f"rank {ODD}, pid {100 + ODD}, has been stopped (state T) and nothing else moves"
    diagnosis = Diagnosis(
        verdict="hung",
        kind="stopped",
        rule="stopped",
        confidence="proven",
        reason=reason,
        phase="weights",
        quiet_s=seconds - still_after,
        culprit=Culprit(host="box", pid=100 + ODD, rank=ODD, title=f"sglang::scheduler_TP{ODD}"),
        evidence=(Evidence(signal="state", value="T", window_s=60.0, points_to="hung"),),
    )
    end = BEGIN + seconds
    yield StepEnded(
        t=end, step="up", type="wait_healthy", host="box", status="failed", verdict="hung", kind="stopped", reason=reason, seconds=seconds, diagnosis=diagnosis
    )  # fmt: skip
    yield MainEnded(t=end, verdict="hung", failed_step="up")
    yield RunEnded(t=end, verdict="hung", kind="stopped", exit_code=3, reason=f"step `up` (wait_healthy): {reason}", failed_step="up")


def numbered(source: Iterator[Any]) -> Iterator[Any]:
    """The events with their numbers, as a journal gives them."""
    for number, event in enumerate(source):
        yield msgspec.structs.replace(event, n=number)


def seconds_for(count: int) -> float:
    """Processor seconds for the page of about `count` events."""
    from runbook.render.html import html

    history = list(numbered(events(seconds=count / 1.2 * 2.0, still_after=count / 2.0)))
    began = time.process_time()
    html(history)
    return time.process_time() - began


def kib_for(count: int) -> int:
    """By how much this process grows for the same page when the events come one after the other; for a fresh process only."""
    from runbook.render.html import html

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    html(numbered(events(seconds=count / 1.2 * 2.0, still_after=count / 2.0)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
