"""Progress in the engine's and the devices' own counters: tokens, steps, collective sequence numbers, GPU memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from runbook.diagnose.motion import MEMORY_STEP, Motion, readings
from runbook.model.gpu import GpuSample
from runbook.model.sample import Sample, Seen


def counter_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """All counters that a stand-still cannot move."""
    yield from _engine_motions(samples)
    yield from _collective_motions(samples)
    yield from _gpu_motions(samples)


def _engine_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    for (before, old), (after, new) in itertools.pairwise(readings(samples, "engine")):
        for signal in ("tokens", "steps"):
            then, now = getattr(old, signal), getattr(new, signal)
            if then is not None and now is not None and now > then:
                yield Motion(after.t, after.t - before.t, signal, float(now - then), f"{now - then} {signal}")


def _collective_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """A rank whose sequence number rose between two looks."""
    last: dict[tuple[str, int, str], tuple[float, int]] = {}
    for sample, found in readings(samples, "collectives"):
        for one in sorted(found, key=lambda each: each.look):
            if one.sequence is None:
                continue
            key = (one.group, one.rank, one.source)
            t, before = last.get(key, (sample.t, one.sequence))
            if one.sequence > before:
                text = f"rank {one.rank} came to collective {one.sequence} of {one.group}"
                yield Motion(sample.t, sample.t - t, "collectives", float(one.sequence - before), text)
            last[key] = (sample.t, one.sequence)


def _gpu_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """GPU memory that our processes gained; where the tool names no process, that all of the GPUs gained."""
    last: tuple[float, dict[int, int]] | None = None
    for sample, gpus in readings(samples, "gpus"):
        used = {gpu.index: _our_memory(gpu, sample) for gpu in gpus}
        if last is not None:
            grown = sum(max(0, now - last[1].get(index, now)) for index, now in used.items())
            if grown >= MEMORY_STEP:
                yield Motion(sample.t, sample.t - last[0], "gpu_memory", float(grown), "GPU memory grows")
        last = (sample.t, used)


def _our_memory(gpu: GpuSample, sample: Sample) -> int:
    known = [holder for holder in gpu.holders if holder.used is not None]
    if not known or not isinstance(sample.processes, Seen):
        return gpu.used
    ours = {process.pid for process in sample.processes.value}
    return sum(holder.used or 0 for holder in known if holder.pid in ours)
