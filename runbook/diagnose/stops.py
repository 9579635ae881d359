"""The one hang that two looks at the process table prove: somebody stopped it."""

from __future__ import annotations

import re

from runbook.diagnose.answers import NEVER_PROOF
from runbook.diagnose.progress import hidden
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.sample import ProcessSample, Sample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence

APART_S = 10.0
Key = tuple[int, int]


def stopped(view: View) -> Diagnosis | None:
    """hung/stopped: when the main process or a rank is in state T in two samples ≥ 10 s apart and in all between, nothing else moving.

    its live twins: a process that is stopped for a moment, and one whose other ranks still make progress. Where the others'
    counters could not be read there is no verdict.
    """
    if view.question.about == "gpu_free" or view.last is None or not isinstance(view.last.processes, Seen):
        return None
    for process in view.last.processes.value:
        if process.state != "T" or not _matters(process, view):
            continue
        span = _quiet_span(view, (process.pid, process.start))
        seconds = span[-1].t - span[0].t if span else 0.0
        if seconds < APART_S or _somebody_answers(view, span):
            continue
        return _verdict(view, process, span, seconds)
    return None


def _matters(process: ProcessSample, view: View) -> bool:
    main = view.main
    if process.rank is not None or (main is not None and (process.pid, process.start) == (main.pid, main.start)):
        return True
    pattern = view.profile.processes.main
    return bool(pattern and re.search(pattern, process.title))


def _state(sample: Sample, key: Key) -> str | None:
    if not isinstance(sample.processes, Seen):
        return None
    return next((process.state for process in sample.processes.value if (process.pid, process.start) == key), None)


def _quiet_span(view: View, key: Key) -> list[Sample]:
    """The newest samples in a row that all saw the process stopped, and in which nothing else moved or could have moved unseen."""
    span: list[Sample] = []
    for sample in reversed(view.samples):
        if _state(sample, key) != "T":
            break
        longer = [sample, *span]
        if not _all_still(longer) and (hidden([sample], view.samples, _still(longer)) or view.moved_since(sample.t)):
            break
        span = longer
    return span


def _somebody_answers(view: View, span: list[Sample]) -> bool:
    """A port that still answers, or that is not ours, is another rule's matter, also while that rule cannot see enough."""
    if any(not one.ours and one.pid > 0 for _, listeners in view.listeners() for one in listeners):
        return True
    if not view.checks or view.checks[-1].answer.outcome != "answer":
        return False
    t, check = view.checks[-1]
    return check.matched or check.status not in NEVER_PROOF or t > span[0].t


def _all_still(span: list[Sample]) -> bool:
    """Whether the whole tree is stopped or dead: then nothing can move, seen or not."""
    everyone = {(p.pid, p.start) for sample in span if isinstance(sample.processes, Seen) for p in sample.processes.value}
    return everyone == _still(span)


def _still(span: list[Sample]) -> frozenset[Key]:
    """Processes that were stopped or dead in every sample of the span."""
    states: dict[Key, set[str]] = {}
    for sample in span:
        for process in sample.processes.value if isinstance(sample.processes, Seen) else ():
            states.setdefault((process.pid, process.start), set()).add(process.state)
    return frozenset(key for key, seen in states.items() if seen <= {"T", "Z", "X"})


def _verdict(view: View, process: ProcessSample, span: list[Sample], seconds: float) -> Diagnosis:
    who = f"rank {process.rank}" if process.rank is not None else "the main process"
    return Diagnosis(
        verdict="hung",
        kind="stopped",
        confidence="proven",
        rule="stopped",
        reason=f"{who}, pid {process.pid} `{quote(process.title)[:80]}`, has been stopped (state T) for "
        f"{format_duration(seconds)} and nothing else moves",
        phase=view.course.current,
        quiet_s=view.quiet_s,
        culprit=Culprit(
            host=view.last.host if view.last else "", pid=process.pid, rank=process.rank, title=process.title, note="stopped by a signal"
        ),
        evidence=(
            Evidence(signal="state", value="T", window_s=round(seconds, 3), points_to="hung"),
            Evidence(signal="samples_stopped", value=len(span), window_s=round(seconds, 3), points_to="hung"),
            Evidence(signal="strong_progress", value=0, window_s=round(seconds, 3), points_to="hung"),
        ),
        blind=view.blind(),
        next=(f"let it go on: `kill -CONT {process.pid}`", "find who stopped it: a debugger, a shell's job control, a batch system"),
    )
