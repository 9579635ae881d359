"""The progress vector: what moved between two samples. CPU is no part of it, since a process that spins for ever burns CPU too.

Only a difference between two readings of the same source counts; a reading that could not be taken is neither motion nor rest.
The first sample is the baseline: what the log said before it is no progress of this wait.

The floors are estimates: a store that is polled while everything hangs moved 8 KiB/s, a throttled but live reader 21 KiB/s.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runbook.diagnose.lines import Bar, TimedLine
from runbook.model.sample import Absent, Blind, GpuSample, ProcessSample, Sample, Seen

STRONG_BYTES_PER_S = 64 * 1024
WEAK_BYTES_PER_S = 16 * 1024
MEMORY_STEP = 1024 * 1024
COMPILERS = re.compile(r"(?:^|/)(nvcc|cicc|ptxas|fatbinary|ninja|cc1plus|cc1|c\+\+|g\+\+|gcc|clang\+*|ld|hipcc|as)\b")
NOT_ASKED = ("not asked", "not sampled")


class Motion(NamedTuple):
    """Something moved between two samples. `amount` is bytes for byte signals, else a count; weak motion does not prove life."""

    t: float
    seconds: float
    signal: str
    amount: float
    text: str
    strong: bool = True
    bar: Bar | None = None


def motions(samples: Sequence[Sample], lines: Sequence[TimedLine]) -> tuple[Motion, ...]:
    """All that moved, in time order."""
    found = list(_log_motions(samples, lines))
    readable = [sample for sample in samples if isinstance(sample.processes, Seen)]
    for before, after in itertools.pairwise(readable):
        found.extend(_process_motions(before, after))
    found.extend(_compiler_motions(readable))
    found.extend(_gpu_motions(samples))
    return tuple(sorted(found, key=lambda motion: motion.t))


def hidden(samples: Sequence[Sample], history: Sequence[Sample], ignore: frozenset[tuple[int, int]] = frozenset()) -> tuple[str, ...]:
    """Sources of progress that could not be read somewhere in `samples`, although the history asks them.

    `ignore`: processes, as (pid, start), whose own counters do not matter. A GPU tool that never answered hides nothing that bytes,
    pages and the log would not show as well, so it counts only where it has answered before. The dead have no counters.
    """
    blind: dict[str, None] = {}
    for source in ("processes", "log", "gpus"):
        if source == "gpus":
            asked = any(isinstance(sample.gpus, Seen) for sample in history)
        else:
            asked = any(not _unasked(getattr(sample, source)) for sample in history)
        for sample in samples:
            outcome = getattr(sample, source)
            if isinstance(outcome, Blind) and asked and not (source == "gpus" and _unasked(outcome)):
                blind[f"{source}: {outcome.reason}"] = None
    everyone = [process for sample in history for process in _processes(sample).values()]
    for source in ("io", "mapped_weights"):
        asked = any(not _unasked(getattr(process, source)) for process in everyone)
        for sample in samples:
            for key, process in _processes(sample).items():
                outcome = getattr(process, source)
                if asked and key not in ignore and process.state not in "ZX" and isinstance(outcome, Blind):
                    blind[f"{source} of pid {process.pid}: {outcome.reason}"] = None
    return tuple(blind)


def _unasked(outcome: object) -> bool:
    return isinstance(outcome, Blind) and outcome.reason in NOT_ASKED


def _processes(sample: Sample) -> dict[tuple[int, int], ProcessSample]:
    if not isinstance(sample.processes, Seen):
        return {}
    return {(process.pid, process.start): process for process in sample.processes.value}


def _log_motions(samples: Sequence[Sample], lines: Sequence[TimedLine]) -> Iterator[Motion]:
    """Lines with new words, counters that go towards a total, and the steps that a phase's progress line reports."""
    times = {sample.t: samples[max(0, index - 1)].t for index, sample in enumerate(samples)}
    first = next((sample.t for sample in samples if isinstance(sample.log, Seen)), None)
    templates: set[str] = set()
    furthest: dict[tuple[str, str, int], int] = {}
    last_step: dict[str, str] = {}
    for t, line in lines:
        seconds = t - times.get(t, t)
        if line.noise or not line.template:
            continue
        if line.bar is not None:
            yield from _bar_motion(t, seconds, line.rank, line.bar, furthest, counts=t != first)
        elif line.moves and last_step.get(line.template) not in (None, line.text) and t != first:
            yield Motion(t, seconds, "steps", 1.0, line.msg)
        elif line.template not in templates and t != first:
            yield Motion(t, seconds, "log", 1.0, line.msg)
        last_step[line.template] = line.text
        templates.add(line.template)


def _bar_motion(t: float, seconds: float, rank: str, bar: Bar, furthest: dict[tuple[str, str, int], int], counts: bool) -> Iterator[Motion]:
    """A bar moves when it passes its highest mark: a loader that starts over again and again does not."""
    key = (rank, bar.name, bar.total)
    before = furthest.get(key)
    if before is None or bar.done > before:
        furthest[key] = bar.done
        if counts:
            yield Motion(t, seconds, "bar", float(bar.done - (before or 0)), f"{bar.name} {bar.done}/{bar.total}", bar=bar)


def _process_motions(before: Sample, after: Sample) -> Iterator[Motion]:
    old, new = _processes(before), _processes(after)
    seconds = after.t - before.t
    pairs = [(old[key], process) for key, process in new.items() if key in old]
    if seconds <= 0:
        return
    yield from _io_motion(before, after, pairs, seconds)
    weights = sum(abs(one) for one in (_change(a.mapped_weights, b.mapped_weights) for a, b in pairs) if one is not None)
    if weights >= MEMORY_STEP:
        yield Motion(after.t, seconds, "weights", float(weights), "mapped weight pages")
    grown = sum(max(0, b.rss - a.rss) for a, b in pairs)
    if grown >= max(MEMORY_STEP, 4 * STRONG_BYTES_PER_S * seconds):
        yield Motion(after.t, seconds, "rss", float(grown), "resident memory grows")


def _compiler_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """Compilers below the server that are new or that ran. Thread times are not read at every look: each is held until the next."""
    ran: dict[tuple[int, int], int] = {}
    for index, sample in enumerate(samples):
        for key, process in _processes(sample).items():
            if not COMPILERS.search(process.title):
                continue
            run_ns = sum(thread.run_ns for thread in process.threads)
            if index and run_ns > ran.get(key, -1):
                yield Motion(sample.t, sample.t - samples[index - 1].t, "compiler", 1.0, f"compiler {process.title[:60]}")
            ran[key] = max(run_ns, ran.get(key, 0))


def _io_motion(before: Sample, after: Sample, pairs: list[tuple[ProcessSample, ProcessSample]], seconds: float) -> Iterator[Motion]:
    """Bytes read, and bytes written apart from the log's own growth."""
    read = written = 0
    for a, b in pairs:
        if isinstance(a.io, Seen) and isinstance(b.io, Seen):
            read += max(0, b.io.value.rchar - a.io.value.rchar, b.io.value.read_bytes - a.io.value.read_bytes)
            written += max(0, b.io.value.wchar - a.io.value.wchar)
    if isinstance(after.log, Seen):
        start = before.log.value.end if isinstance(before.log, Seen) else after.log.value.offset
        written = max(0, written - max(0, after.log.value.size - start))
    for signal, amount in (("read", read), ("written", written)):
        if amount >= WEAK_BYTES_PER_S * seconds:
            yield Motion(after.t, seconds, signal, float(amount), f"bytes {signal}", strong=amount >= STRONG_BYTES_PER_S * seconds)


def _gpu_motions(samples: Sequence[Sample]) -> Iterator[Motion]:
    """GPU memory that our processes gained; where the tool names no process, that all of the GPUs gained."""
    last: tuple[float, dict[int, int]] | None = None
    for sample in samples:
        if not isinstance(sample.gpus, Seen):
            continue
        used = {gpu.index: _our_memory(gpu, sample) for gpu in sample.gpus.value}
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


def _change(before: Seen[int] | Absent | Blind, after: Seen[int] | Absent | Blind) -> int | None:
    if isinstance(before, Seen) and isinstance(after, Seen):
        return after.value - before.value
    return None
