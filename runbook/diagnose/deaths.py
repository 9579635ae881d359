"""Rules about an end: the host is lost, or the process is dead. They come first, since everything else needs both alive."""

from __future__ import annotations

import re

from runbook.diagnose.causes import Cause, Causes, causes
from runbook.diagnose.phases import rank_number
from runbook.diagnose.view import View
from runbook.diagnose.words import quote
from runbook.model.sample import Absent, Blind, ExitSample, PressureSample, ProcessSample, Sample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence, Finding

READ_ON_S = 1.5
"""How long the rest of a dead server's log is waited for. Less than the 2 s between two looks, so that the next one is late enough."""
TIMERS_S = (60, 120, 300, 480, 600, 900, 1200, 1800, 3600, 7200, 28800)
"""Limits that engines, watchdogs and collectives use by default, in seconds."""
TIMER_SLACK_S = 2.0
PRESSED = 20.0
"""Share of time, in percent, that tasks waited for memory: above it a SIGKILL is likely the kernel's."""
KILLED_CODES = {137: "KILL", 134: "ABRT", 139: "SEGV", 143: "TERM", 135: "BUS", 132: "ILL", 136: "FPE"}
"""A shell reports a child's signal as 128 + its number."""

_NO_MODULE = re.compile(r"(?:^(?P<python>/\S+): .*)?\bNo module named '?(?P<module>[\w.]+)")
"""As of an import, or of `python -m`, which begins with the path of that Python."""


def unreachable(view: View) -> Diagnosis | None:
    """unreachable: the host did not answer any more at the end of the box. Until then it is tried again. Says nothing about the server."""
    lost = []
    for sample in reversed(view.samples):
        if not isinstance(sample.link, Absent):
            break
        lost.append(sample)
    if not lost or not view.question.final:
        return None
    link = lost[0].link
    why = link.reason if isinstance(link, Absent) else ""
    seconds = view.now - lost[-1].t
    return Diagnosis(
        verdict="unreachable",
        rule="unreachable",
        reason=f"the host has not answered for {format_duration(seconds)}: {quote(why) or 'no reason given'}; "
        "nothing is said about the server",
        phase=view.course.current,
        evidence=(Evidence(signal="link", value=why or "lost", window_s=round(seconds, 3), points_to="unreachable"),),
        next=(
            "check the way in: `runbook doctor HOST`",
            "the server is kept by its keeper on the host: `runbook show RUN` when the host is back",
        ),
    )


def dead(view: View) -> Diagnosis | None:
    """crashed: the server's main process ended. Its parent's exit status is the proof, the first cause in the log the reason."""
    outcome = view.newest("exit")
    if not isinstance(outcome, Seen):
        return None
    ended: ExitSample = outcome.value
    found = causes([timed.line for timed in view.lines], view.rules)
    if found.first is None and _log_goes_on(view):
        return None
    kind, confidence, note = _kind(view, ended, found)
    return Diagnosis(
        verdict="crashed",
        kind=kind,
        confidence=confidence,
        rule="dead",
        reason=_reason(view, f"{_how(ended)} after {format_duration(ended.lived_s)}", found, note),
        phase=view.course.current,
        quiet_s=view.quiet_s,
        culprit=_culprit(view, found.first),
        evidence=(*_exit_evidence(ended), *_log_evidence(view, found)),
        findings=_findings(found),
        blind=view.blind(),
        next=_missing_module(found.first) or _next(kind, _signal(ended)),
    )


def gone(view: View) -> Diagnosis | None:
    """crashed: no process of the server is left, or its main process is a zombie, at two looks ≥ 1.5 s apart, and nobody recorded how it
    ended."""
    absent = []
    for sample in reversed(view.samples):
        if not (_is_over(sample, view) and isinstance(sample.exit, Blind)):
            break
        absent.append(sample)
    if not absent or (view.now - absent[-1].t < READ_ON_S and not view.question.final):
        return None
    zombie = view.main if isinstance(absent[0].processes, Seen) else None
    found = causes([timed.line for timed in view.lines], view.rules)
    kind = found.first.kind if found.first is not None and found.first.kind != "own_timer" else None
    if kind is None and zombie is not None and (zombie.exit_code or 0) < 0:
        kind = "signal"
    return Diagnosis(
        verdict="crashed",
        kind=kind,
        confidence="strong",
        rule="gone",
        reason=_reason(view, _left(zombie), found, ""),
        phase=view.course.current,
        culprit=_culprit(view, found.first),
        evidence=(
            Evidence(signal="processes", value="none left" if zombie is None else "zombie", points_to="crashed"),
            *_log_evidence(view, found),
        ),
        findings=_findings(found),
        blind=view.blind(),
        next=_missing_module(found.first) or _next(kind, None),
    )


def _is_over(sample: Sample, view: View) -> bool:
    """Nothing is left of it, or the main process is dead and only waits for its parent to take note."""
    if isinstance(sample.processes, Absent):
        return True
    main = view.main
    rows = sample.processes.value if isinstance(sample.processes, Seen) else ()
    return main is not None and any((one.pid, one.start) == (main.pid, main.start) and one.state in "ZX" for one in rows)


def _left(zombie: ProcessSample | None) -> str:
    if zombie is None:
        return "is gone, and how it ended was not recorded"
    code = zombie.exit_code
    how = "has ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"
    return f"{how}, and its parent, pid {zombie.ppid}, has not collected it"


def _log_goes_on(view: View) -> bool:
    """The last lines may not be read yet: the log was read before the death, or only in part."""
    first = next(sample.t for sample in view.samples if isinstance(sample.exit, Seen))
    if view.question.final or view.now - first >= READ_ON_S:
        return False
    since = [sample for sample in view.samples if sample.t >= first]
    log = view.current("log")
    unread = isinstance(log, Seen) and log.value.end < log.value.size
    return unread or len(since) < 2


def _signal(ended: ExitSample) -> str | None:
    return ended.signal or KILLED_CODES.get(ended.code or 0)


def _kind(view: View, ended: ExitSample, found: Causes) -> tuple[str | None, str, str]:
    """(kind, confidence, a note for the reason). A word like `Killed` in the log proves no memory shortage."""
    if ended.killed_by_us:
        return "signal", "proven", "runbook itself stopped it"
    if ended.oom_killed and _signal(ended) in ("KILL", "SIGKILL"):
        return "oom_host", "proven", "the kernel's out-of-memory killer ended it"
    if ended.oom_killed:
        sure = "proven" if ended.oom_source == "kernel log" else "strong"
        return "oom_host", sure, "the kernel's out-of-memory killer ended one of its processes"
    if found.first is not None and found.first.kind == "own_timer":
        return _own_timer(view, "its own watchdog ended it", view.lines[found.first.place].t)
    if found.first is not None:
        return found.first.kind, "strong", ""
    signal = _signal(ended)
    if signal == "KILL" and _memory_pressure(view) >= PRESSED:
        return "oom_host", "likely", "memory was short on the host when it was killed"
    timer = next((limit for limit in TIMERS_S if abs(ended.lived_s - limit) <= TIMER_SLACK_S), None)
    if timer is not None and signal in ("KILL", "TERM", "ABRT", "QUIT"):
        kind, _, note = _own_timer(view, f"it ended at {format_duration(ended.lived_s)}, a usual limit of {format_duration(timer)}", None)
        return kind, "likely", note
    return ("signal" if signal else None), "proven", ""


def _own_timer(view: View, what: str, said_at: float | None) -> tuple[str, str, str]:
    """A timer that ends a working server is not the same as one that ends a hang. The timer's own words (at `said_at`) are no progress."""
    moving = [motion.t for motion in view.motions if motion.strong and not (motion.signal == "log" and motion.t == said_at)]
    ended = next(sample.t for sample in view.samples if isinstance(sample.exit, Seen))
    quiet = ended - (moving[-1] if moving else view.samples[0].t)
    if moving and quiet <= view.recent_s:
        return "own_timer", "strong", f"{what} while it was making progress"
    return "exception", "likely", f"{what}; no progress was seen for {format_duration(quiet)} before"


def _memory_pressure(view: View) -> float:
    outcome = view.newest("pressure")
    pressure: PressureSample | None = outcome.value if isinstance(outcome, Seen) else None
    return pressure.memory if pressure else 0.0


def _how(ended: ExitSample) -> str:
    if ended.signal:
        return f"was ended by SIG{ended.signal.removeprefix('SIG')}"
    return f"ended with exit code {ended.code}"


def _reason(view: View, how: str, found: Causes, note: str) -> str:
    where = f" in phase `{view.course.current}`" if view.course.current else ""
    text = f"the server {how}{where}"
    if note:
        text += f": {note}"
    if found.first is not None:
        return f"{text}; first cause: {quote(found.first.line)}"
    last = next((timed.line.text for timed in reversed(view.lines) if timed.line.text.strip()), None)
    if found.survived:
        return f"{text}; no cause stands near the end of its log, an earlier error was: {quote(found.survived[-1].line)}"
    if last is not None:
        return f"{text}; its log names no cause, the last line is: {quote(last)}"
    return f"{text}; its log is empty" if isinstance(view.newest("log"), Seen) else f"{text}; its log could not be read"


def _culprit(view: View, first: Cause | None) -> Culprit | None:
    if first is None or not first.rank:
        return None
    return Culprit(host=view.samples[-1].host, rank=rank_number(first.rank), title=first.rank, note="reported the first cause")


def _exit_evidence(ended: ExitSample) -> tuple[Evidence, ...]:
    status = f"SIG{ended.signal.removeprefix('SIG')}" if ended.signal else ended.code
    rows = [
        Evidence(signal="exit", value=status, points_to="crashed"),
        Evidence(signal="lived", value=round(ended.lived_s, 3), unit="s", points_to="nothing"),
    ]
    if ended.oom_killed:
        rows.append(Evidence(signal="oom_killed", value=ended.oom_source or True, points_to="crashed"))
    return tuple(rows)


def _log_evidence(view: View, found: Causes) -> tuple[Evidence, ...]:
    rows = []
    if found.first is not None:
        rows.append(Evidence(signal="first_cause", value=quote(found.first.line), points_to="crashed"))
    if found.echoes:
        rows.append(Evidence(signal="echoes", value=found.echoes, unit="lines", points_to="nothing"))
    skipped = sum(sample.log.value.skipped for sample in view.samples if isinstance(sample.log, Seen))
    if skipped:
        rows.append(Evidence(signal="log_lines_not_read", value=skipped, unit="lines", points_to="nothing"))
    return tuple(rows)


def _findings(found: Causes) -> tuple[Finding, ...]:
    return tuple(
        Finding(code="survived_error", text=f"the server lived through an earlier error: {quote(one.line)}") for one in found.survived[:3]
    )


def _missing_module(first: Cause | None) -> tuple[str, ...]:
    """What to do when the first cause is a Python that lacks a module; `python -m` says which Python that is."""
    found = _NO_MODULE.search(first.line) if first is not None else None
    if found is None:
        return ()
    python, module = found["python"], found["module"]
    who = f"`{python}`" if python else "the interpreter of the launch"
    return (
        f"{who} has no module `{module}`: let `prelude:` activate the environment that has it, or name that one's python in `command:`",
        f"try it on the host: `{python or 'python'} -c 'import {module}'`",
    )


def _next(kind: str | None, signal: str | None) -> tuple[str, ...]:
    if kind == "oom_host":
        return (
            "see what the kernel says: `dmesg -T | grep -i -A3 'killed process'`",
            "give it more memory or load with fewer ranks at once",
        )
    if kind == "oom_gpu":
        return ("see who else holds GPU memory: a `wait_gpu_free` step before the launch", "lower the engine's memory fraction")
    if kind == "port_in_use":
        return ("find the owner of the port: `ss -ltnp`", "stop it with a `kill: {match: {port: N}}` step before the launch")
    if kind == "own_timer":
        return ("raise that timer: the server was still working",)
    if kind == "signal" and signal == "KILL":
        return ("who sent it? the kernel says so for memory: `dmesg -T | grep -i 'killed process'`",)
    return ("read the log from the first cause on",)
