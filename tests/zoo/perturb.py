"""Recordings judged again with what else could have been seen: other times, lost samples, sources that could not be read."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from runbook.diagnose.judge import judge
from runbook.diagnose.thin import carry_log
from runbook.engine.memory import Memory
from runbook.engine.recording import load_recording
from runbook.engine.replay import Wait, waits
from runbook.model.sample import Blind, ProcessSample, Sample, Seen
from runbook.model.verdict import Diagnosis
from tests.zoo.actor import collect
from tests.zoo.looking import ends_of
from tests.zoo.outcome import Outcome, compare
from tests.zoo.scenario import SCENARIOS

OF_SAMPLE = ("log", "sockets", "locks", "folders", "disks", "pressure", "stacks", "calls", "peers", "listeners")
OF_PROCESS = ("io", "mapped_weights", "files", "pipes")
EVERY = 3
"""Every so many samples the judge is asked; at each would only cost more."""
REASON = "not permitted (perturbed)"


def rejudge(folder: Path, names: Sequence[str], seeds: Sequence[int], times: int) -> list[Outcome]:
    """Each recording of these scenarios and seeds as it is, then so many times changed."""
    records = [(folder / f"{name}-{seed}.jsonl", name, seed, times) for name in names for seed in seeds]
    known = [record for record in records if record[0].with_suffix(".truth.json").exists()]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return [one for found in pool.map(_all_variants, known) for one in found]


def _all_variants(record: tuple[Path, str, int, int]) -> list[Outcome]:
    collect()
    file, name, seed, times = record
    return [_again(file, name, seed, variant) for variant in range(times + 1)]


def _again(record: Path, name: str, seed: int, variant: int) -> Outcome:
    """Variant 0 is the recording as it is, by the rules of today: what they say, and when they would first have said it."""
    (wait,) = waits(load_recording(record.parent, record.name))
    scenario, truth = SCENARIOS[name], msgspec.json.decode(record.with_suffix(".truth.json").read_bytes())
    text, every = "as recorded", 1
    if variant:
        text, every = perturb(wait, random.Random(f"{name} {seed} {variant}")), EVERY
    boxed = truth["outcome"]["verdict"] not in ends_of(scenario)
    answer, t = replay(wait, ends_of(scenario), every, boxed)
    outcome = compare(scenario, seed, answer, truth["culprit"], str(record), f"{variant}: {text}")
    if variant or truth["stuck"] is None or answer.verdict != scenario.right:
        return outcome
    return msgspec.structs.replace(outcome, after_s=t - max(truth["stuck"], truth["began"]))


def perturb(wait: Wait, rng: random.Random) -> str:
    """One change of each sort to what was seen; answers what it was. Time only gets longer: a recording ends at its verdict."""
    patience = rng.choice((None, None, 30.0))
    pace, lost = rng.choice((1.0, 1.25, 1.6)), rng.choice((0.0, 0.2, 0.5))
    blind = rng.choice(("", *OF_SAMPLE, *OF_PROCESS, "threads"))
    kept = _drop(wait.samples, lost, rng)
    begin = kept[0].t
    times = [begin + (one.t - begin) * pace + rng.uniform(-0.2, 0.2) for one in kept]
    for index in range(1, len(times)):
        times[index] = max(times[index], times[index - 1] + 0.05)
    wait.samples = [
        msgspec.structs.replace(_hide(one, blind), t=t, host_t=one.host_t + t - one.t) for one, t in zip(kept, times, strict=True)
    ]
    wait.question = msgspec.structs.replace(wait.question, stall_after_s=patience)
    return f"time x {pace}, {lost:.0%} lost, blind to {blind or 'nothing'}, patience {patience or 'as ever'}"


def _drop(samples: list[Sample], share: float, rng: random.Random) -> list[Sample]:
    """Some samples never came; what the log said in them comes with the next. Stacks and system calls are asked for until they come."""
    kept: list[Sample] = []
    pending: Sample | None = None
    for sample in samples:
        sample = carry_log(pending, sample) if pending is not None else sample
        pending = None
        asked = isinstance(sample.stacks, Seen) or isinstance(sample.calls, Seen)
        if kept and rng.random() < share and not asked and sample is not samples[-1]:
            pending = sample
        else:
            kept.append(sample)
    return kept


def _hide(sample: Sample, source: str) -> Sample:
    if source in OF_SAMPLE:
        return msgspec.structs.replace(sample, **{source: Blind(REASON)})
    if not source or not isinstance(sample.processes, Seen):
        return sample
    hidden: dict[str, Any] = {"threads": ()} if source == "threads" else {source: Blind(REASON)}
    processes: tuple[ProcessSample, ...] = tuple(msgspec.structs.replace(one, **hidden) for one in sample.processes.value)
    return msgspec.structs.replace(sample, processes=Seen(processes))


def replay(wait: Wait, ends: frozenset[str], every: int, boxed: bool) -> tuple[Diagnosis, float]:
    """What the wait would have ended with and when: the first verdict among `ends`, else the one at the end of its box.

    boxed: the recording lasted as long as its box. One that a verdict ended does not say what the end of the box would bring: where
    that verdict fails to come, the wait would have gone on.
    """
    memory = Memory()
    for number, sample in enumerate(wait.samples):
        memory.add(sample)
        last = number == len(wait.samples) - 1
        if last or number % every == 0:
            question = msgspec.structs.replace(wait.question, final=last and boxed)
            answer = judge(memory.view(), wait.profile, question, sample.t)
            if answer is not None and ((last and boxed) or answer.verdict in ends):
                return answer, sample.t
    return Diagnosis(verdict="undecided", rule="goes_on", reason="the recording ended before a verdict was due"), wait.samples[-1].t
