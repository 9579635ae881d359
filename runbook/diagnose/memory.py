"""Rules about GPU memory: is it free, and who holds it."""

from __future__ import annotations

from runbook.diagnose import words
from runbook.diagnose.view import View
from runbook.model.gpu import GpuSample
from runbook.model.sample import Absent, Sample, Seen
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Culprit, Diagnosis, Evidence, Finding


def gpu_tool_missing(view: View) -> Diagnosis | None:
    """undecided: the host has no tool that reports GPU memory, so waiting on brings nothing."""
    if view.question.about != "gpu_free" or view.last is None or not isinstance(view.last.gpus, Absent):
        return None
    return Diagnosis(
        verdict="undecided",
        rule="gpu_tool_missing",
        reason=f"GPU memory cannot be asked on this host: {view.last.gpus.reason or 'no tool'}",
        blind=(f"gpus: {view.last.gpus.reason or 'no tool'}",),
        next=("on a host without a GPU write `when_missing: skip`", "else put the driver's tool on the PATH of the login"),
    )


def gpu_free(view: View) -> Diagnosis | None:
    """passed: every GPU was below the ceiling for `stable_for` without a break; a look that failed is a break."""
    if view.question.about != "gpu_free":
        return None
    run: list[Sample] = []
    for sample in reversed(view.samples):
        if not _below(sample, view):
            break
        run.insert(0, sample)
    if not run or run[-1].t - run[0].t < view.question.stable_for_s:
        return None
    gpus = _gpus(run[-1])
    return Diagnosis(
        verdict="passed",
        rule="gpu_free",
        confidence="proven",
        reason=f"{len(gpus)} GPUs below {format_size(view.question.below)} for {format_duration(run[-1].t - run[0].t)}",
        evidence=_evidence(gpus, "passed"),
        findings=_faults(gpus),
    )


def resource_held(view: View) -> Diagnosis | None:
    """resource_held: at the end of the box a GPU still was above the ceiling; its holders are named, or said to be invisible."""
    if view.question.about != "gpu_free" or not view.question.final or view.last is None or not isinstance(view.last.gpus, Seen):
        return None
    gpus = _gpus(view.last)
    held = [gpu for gpu in gpus if gpu.used >= view.question.below]
    if not held:
        return None
    holders = [holder for gpu in held for holder in gpu.holders]
    invisible = [gpu.index for gpu in held if not gpu.holders]
    culprit = max(holders, key=lambda holder: holder.used or 0, default=None)
    next_looks = [f"stop it if it is yours: `kill: {{match: {{gpu: {held[0].index}}}}}`"] if holders else []
    if invisible:
        next_looks.append(
            "memory without a visible owner: another container or user (`sudo fuser -v /dev/nvidia*`), or a leak in the driver"
        )
    return Diagnosis(
        verdict="resource_held",
        kind="gpu_memory",
        confidence="proven",
        rule="resource_held",
        reason=f"{words.holding_note(view.question, view.elapsed_s)}: " + "; ".join(words.gpu(gpu) for gpu in held),
        culprit=Culprit(host=view.last.host, pid=culprit.pid, title=culprit.title, note=f"of {culprit.user}") if culprit else None,
        evidence=_evidence(held, "resource_held"),
        findings=_faults(gpus),
        blind=(),
        next=tuple(next_looks),
        limited_by=view.question.limited_by,
    )


def _gpus(sample: Sample) -> tuple[GpuSample, ...]:
    return sample.gpus.value if isinstance(sample.gpus, Seen) else ()


def _below(sample: Sample, view: View) -> bool:
    gpus = _gpus(sample)
    return bool(gpus) and all(gpu.used < view.question.below for gpu in gpus)


def _evidence(gpus: tuple[GpuSample, ...] | list[GpuSample], points_to: str) -> tuple[Evidence, ...]:
    return tuple(Evidence(signal=f"gpu{gpu.index}_memory", value=gpu.used, unit="B", points_to=points_to) for gpu in gpus)


def _faults(gpus: tuple[GpuSample, ...]) -> tuple[Finding, ...]:
    return tuple(Finding(code="gpu_fault", text=f"GPU {gpu.index}: {fault}") for gpu in gpus for fault in gpu.faults)
