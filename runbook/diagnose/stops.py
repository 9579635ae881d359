"""The one hang that two looks at the process table prove: somebody stopped it."""

from __future__ import annotations

import re

from runbook.diagnose.answers import NEVER_PROOF
from runbook.diagnose.family import rank_of
from runbook.diagnose.motion import Key, rows
from runbook.diagnose.progress import hidden
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.sample import ProcessSample, Sample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence

APART_S = 10.0


def stopped(view: View) -> Diagnosis | None:
    """hung/stopped: when the main process, a rank or a worker of the engine is in state T in two samples ≥ 10 s apart and in all between,
    its threads' run time and switches and its bytes unchanged, nothing else moving.

    its live twins: a process that is stopped for a moment, one that is stopped and let go on in turn, as to throttle it, a helper of a
    rank, and a rank whose peers still make progress. Where counters could not be read there is no verdict. A health path that asks the
    engine nothing may answer all the while.
    """
    if view.question.about == "gpu_free" or view.last is None or not isinstance(view.last.processes, Seen):
        return None
    for process in view.last.processes.value:
        if process.state != "T" or not _matters(process, view):
            continue
        span = _quiet_span(view, (process.pid, process.start))
        seconds = _watched_s(span, (process.pid, process.start))
        if seconds < APART_S or _somebody_answers(view, process, span):
            continue
        return _verdict(view, process, span, seconds)
    return None


def unanswerable(view: View) -> ProcessSample | None:
    """A process of the engine that is in state T now, and of which the answers of the health path tell nothing."""
    last = view.last.processes if view.last is not None else None
    rows = last.value if isinstance(last, Seen) else ()
    return next((process for process in rows if process.state == "T" and _speaks_for_itself_only(view, process)), None)


def _speaks_for_itself_only(view: View, process: ProcessSample) -> bool:
    """Whether a good health answer comes from another process, which asks this one nothing: vLLM's API server answers without its core."""
    return view.profile.health.side_effect == "none" and not _listens(view, process) and _of_the_engine(process, view)


def _listens(view: View, process: ProcessSample) -> bool:
    return any(one.pid == process.pid for _, listeners in view.listeners() for one in listeners)


def _matters(process: ProcessSample, view: View) -> bool:
    main = view.main
    return (main is not None and (process.pid, process.start) == (main.pid, main.start)) or _of_the_engine(process, view)


def _of_the_engine(process: ProcessSample, view: View) -> bool:
    """A rank, or by its title: a lone worker has no number there, and an engine core is no rank at all."""
    engine = view.profile.processes
    titled = any(pattern and re.search(pattern, process.title) for pattern in (engine.main, engine.workers))
    return titled or rank_of(view, (process.pid, process.start)) is not None


def _state(sample: Sample, key: Key) -> str | None:
    if not isinstance(sample.processes, Seen):
        return None
    return next((process.state for process in sample.processes.value if (process.pid, process.start) == key), None)


def _watched_s(span: list[Sample], key: Key) -> float:
    """How long its threads were looked at."""
    looks = [sample.t for sample in span if key in rows(sample) and rows(sample)[key].threads]
    return looks[-1] - looks[0] if looks else 0.0


def _quiet_span(view: View, key: Key) -> list[Sample]:
    """The newest samples in a row that all saw the process stopped, and in which nothing else moved or could have moved unseen."""
    span: list[Sample] = []
    for sample in reversed(view.samples):
        if _state(sample, key) != "T":
            break
        longer = [sample, *span]
        if key not in _still(longer):
            break
        if not _all_still(longer) and (hidden([sample], view.samples, _still(longer)) or view.moved_since(sample.t)):
            break
        span = longer
    return span


def _somebody_answers(view: View, process: ProcessSample, span: list[Sample]) -> bool:
    """A port that still answers, or that is not ours, is another rule's matter, also while that rule cannot see enough."""
    if any(not one.ours and one.pid > 0 for _, listeners in view.listeners() for one in listeners):
        return True
    if not view.checks or view.checks[-1].answer.outcome != "answer" or _speaks_for_itself_only(view, process):
        return False
    t, check = view.checks[-1]
    if check.status in view.profile.health.starting_status and not check.matched and not _listens(view, process):
        return False  # "I am starting" is said by the server's front alone
    return check.matched or check.status not in NEVER_PROOF or t > span[0].t


def _all_still(span: list[Sample]) -> bool:
    """Whether the whole tree is stopped or dead: then nothing can move, seen or not."""
    everyone = {(p.pid, p.start) for sample in span if isinstance(sample.processes, Seen) for p in sample.processes.value}
    return everyone == _still(span)


def _still(span: list[Sample]) -> frozenset[Key]:
    """Processes that were stopped or dead in every sample of the span, and executed nothing between them."""
    looks: dict[Key, list[ProcessSample]] = {}
    for sample in span:
        for key, process in rows(sample).items():
            looks.setdefault(key, []).append(process)
    return frozenset(key for key, found in looks.items() if all(one.state in "TZX" for one in found) and not _executed(found))


def _executed(looks: list[ProcessSample]) -> bool:
    """Whether its threads ran or its bytes moved from look to look, as of one that is let go on in between."""
    stopped = [process for process in looks if process.state == "T"]
    turns = {tuple((thread.tid, thread.run_ns, thread.switches) for thread in one.threads) for one in stopped if one.threads}
    return len(turns) > 1 or len({one.io.value for one in stopped if isinstance(one.io, Seen)}) > 1


def _verdict(view: View, process: ProcessSample, span: list[Sample], seconds: float) -> Diagnosis:
    rank = rank_of(view, (process.pid, process.start))
    is_main = re.search(view.profile.processes.main or "$^", process.title) or (view.main is not None and process.pid == view.main.pid)
    who = f"rank {rank}" if rank is not None else "the main process" if is_main else "a process of the engine"
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
            host=view.last.host if view.last else "", pid=process.pid, rank=rank, title=process.title, note="stopped by a signal"
        ),
        evidence=(
            Evidence(signal="state", value="T", window_s=round(seconds, 3), points_to="hung"),
            Evidence(signal="samples_stopped", value=len(span), window_s=round(seconds, 3), points_to="hung"),
            Evidence(signal="strong_progress", value=0, window_s=round(seconds, 3), points_to="hung"),
        ),
        blind=view.blind(),
        next=(f"let it go on: `kill -CONT {process.pid}`", "find who stopped it: a debugger, a shell's job control, a batch system"),
    )
