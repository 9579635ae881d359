"""Rules for the end of a time box: alive after settling, slow but moving, or undecided with what would decide."""

from __future__ import annotations

from collections.abc import Sequence

from runbook.diagnose import baseline, words
from runbook.diagnose.doubts import doubts
from runbook.diagnose.motion import Motion
from runbook.diagnose.phases import READY
from runbook.diagnose.places import main_stacks
from runbook.diagnose.standstill import excused, missing_s, standstill, tokens_stand
from runbook.diagnose.stops import unanswerable
from runbook.diagnose.view import View
from runbook.model.sample import Absent, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis, Evidence, Finding

FRESH_S = 20.0
"""A weak motion that is older says nothing about the end of the box."""
BAR_RATE_S = 60.0
"""A bar's rate is taken over this time: long enough for a shard in twenty seconds."""
FRONT_S = 3.0
"""For so long a front that asks its workers nothing is asked: vLLM's goes on to answer 200 for up to two seconds without them."""


def serving(view: View) -> Diagnosis | None:
    """passed: of a server that is only looked at: it answered well, and for 3 s where its health path asks the workers nothing; or its
    ready mark stands in the log and its port listens; and no process of the engine is stopped, of which such an answer tells nothing."""
    if view.question.about != "state" or unanswerable(view) is not None:
        return None
    good = next((check.answer for check in reversed(view.checks) if check.answer.outcome == "answer"), None)
    if good is not None and (good.matched or (good.status or 500) < 400) and not view.once(tokens_stand):
        known = not view.profile.front_alone or _good_for_s(view) >= FRONT_S
        if not known and not view.question.final:
            return None
        return Diagnosis(
            verdict="passed",
            rule="serving",
            confidence="strong" if known else "likely",
            reason=f"serving: {good.url} answered {words.answer(good)}",
            phase=READY,
            evidence=(Evidence(signal="status", value=good.status, points_to="passed"),),
            blind=view.blind(),
        )
    listeners = view.listeners()
    up = bool(listeners) and any(one.ours for one in listeners[-1][1])
    if good is not None or view.checks or not up or view.course.ready_at is None or not view.question.final:
        return None
    return Diagnosis(
        verdict="passed",
        rule="serving",
        confidence="likely",
        reason="serving: it listens and its log says that it is ready; nobody asked it",
        phase=READY,
        evidence=(Evidence(signal="listener", value=words.listener(listeners[-1][1][0]), points_to="passed"),),
        blind=view.blind(),
        next=("ask it: give its URL or port",),
    )


def _good_for_s(view: View) -> float:
    """How long it has answered without a bad answer between."""
    since = view.now
    for check in reversed(view.checks):
        if check.answer.outcome != "answer" or (check.answer.status or 500) >= 400:
            break
        since = check.t
    return view.checks[-1].t - since


def settled(view: View) -> Diagnosis | None:
    """passed: at the end of the settling time the process is alive."""
    if view.question.about != "settle" or not view.question.final:
        return None
    processes = view.current("processes")
    if not isinstance(view.current("exit"), Absent) and not (isinstance(processes, Seen) and processes.value):
        return None
    return Diagnosis(
        verdict="passed", rule="settled", reason=f"alive {format_duration(view.elapsed_s)} after its start", phase=view.course.current
    )


def slow(view: View) -> Diagnosis | None:
    """slow: the box ended while progress was seen. on_track within its usual time, late beyond it, crawling under the rate floor."""
    if view.question.about == "gpu_free" or not view.question.final:
        return None
    moving = _moving(view)
    if not moving:
        return None
    strong = [motion for motion in moving if motion.strong]
    late = baseline.late(view)
    kind = "crawling" if not strong else "late" if late else "on_track"
    left = eta_s(view)
    rates = words.rates(moving, min(view.recent_s, view.now - view.samples[0].t))
    phase = view.course.current
    where = f" in phase `{phase}`" if phase else ""
    coming = f", about {format_duration(left)} left in this phase" if left is not None else ""
    return Diagnosis(
        verdict="slow",
        kind=kind,
        confidence="strong" if strong else "likely",
        rule="slow",
        reason=f"{_still(view, kind)}{where}: {_spoken(rates)}{coming}{_and(late or baseline.usually(view))}",
        phase=phase,
        progress=dict(rates),
        eta_s=left,
        quiet_s=view.quiet_s,
        evidence=(*_moving_evidence(moving, view.recent_s), *baseline.evidence(view)),
        findings=_check_finding(view),
        blind=view.blind(),
        next=("give it more time: a longer `timeout:`",),
        limited_by=view.question.limited_by,
    )


def _moving(view: View) -> list[Motion]:
    """What moved of late. A weak motion must be fresher, and neither counts of a tree that has executed nothing since."""
    found = view.moved_since(view.now - view.recent_s, strong_only=False)
    if not any(motion.strong for motion in found):
        found = [motion for motion in found if motion.t > view.now - FRESH_S]
    stand = view.once(standstill)
    return [] if stand.has("execution") and stand.has("place") else found


def _still(view: View, kind: str) -> str:
    if view.question.about == "state":
        return f"{'working' if view.course.ready_at is not None else 'loading'}, {kind.replace('_', ' ')}"
    return f"{words.holding_note(view.question, view.elapsed_s)} the server is still working"


def undecided(view: View) -> Diagnosis | None:
    """undecided: the box ended, no progress was seen, and nothing proves a hang. Lists what could not be seen."""
    if not view.question.final:
        return None
    blind = view.blind()
    quiet = view.quiet_s
    phase = view.course.current
    seen = f"no progress was seen for {format_duration(quiet)}" if quiet is not None else "nothing was observed"
    where = f" in phase `{phase}`" if phase else ""
    check = f"; the last check brought {words.answer(view.checks[-1].answer)}" if view.checks else ""
    judged = view.samples and view.question.about != "gpu_free"
    proof = _for_and_against(view) if judged else ""
    unseen = f"; not visible: {'; '.join(blind)}" if blind else "" if proof else "; silence alone does not prove a hang"
    return Diagnosis(
        verdict="undecided",
        rule="undecided",
        reason=f"{words.holding_note(view.question, view.elapsed_s)}: {seen}{where}{check}{unseen}{proof}",
        phase=phase,
        quiet_s=quiet,
        evidence=(Evidence(signal="quiet", value=round(quiet, 3), unit="s"), *_hints(view), *baseline.evidence(view))
        if quiet is not None
        else (),
        findings=_check_finding(view),
        blind=blind,
        next=_next_looks(view, blind)
        if judged
        else words.next_looks(blind)
        if view.question.about != "gpu_free"
        else (words.NEXT["gpus"],),
        limited_by=view.question.limited_by,
    )


def _for_and_against(view: View) -> str:
    """What speaks for a hang, and what would have to be known or to pass to call it one."""
    stand = view.once(standstill)
    against = [*stand.actors, *(one.text for one in stand.unseen), *doubts(view)]
    excuse = excused(view)
    if excuse:
        against.insert(0, excuse)
    if not against and stand.proofs and missing_s(stand) > 0:
        against.append(f"{format_duration(missing_s(stand))} of its stall budget are left")
    elif not against and stand.proofs:
        against.append("what ends its wait may come from outside, or from a thread that sleeps or waits itself")
    spoken = f"; for a hang speaks: {'; '.join(proof.text for proof in stand.proofs)}" if stand.proofs and not excuse else ""
    return spoken + (f"; open: {'; '.join(against[:3])}" if against else "")


def _next_looks(view: View, blind: Sequence[str]) -> tuple[str, ...]:
    """The cheapest looks that would decide. Stacks only where they were not taken; else time."""
    if view.question.about == "gpu_free":
        return (words.NEXT["gpus"],)
    if not view.samples:
        return words.next_looks(blind)
    if view.checks and view.checks[-1].answer.status in words.NO_SUCH_PATH:
        return (words.ask_another_path(view.checks[-1].answer, view.question.about),)
    found = words.next_looks(blind) if blind else ()
    if any(one.kind == "elsewhere" for one in view.once(standstill).unseen):
        found = (*found, words.RANKS)
    if not view.once(main_stacks):
        found = (*found, words.STACKS)
    if view.once(standstill).proofs or not found:
        found = (*found, "look longer: a longer `timeout:`, or `--for 5m`")
    return found


def _hints(view: View) -> tuple[Evidence, ...]:
    """Classes of hang evidence that were seen, though they did not suffice."""
    if view.question.about == "gpu_free":
        return ()
    return tuple(
        Evidence(signal=proof.signal, value=proof.value, window_s=round(proof.window_s, 3), points_to="hung")
        for proof in view.once(standstill).proofs
    )


def eta_s(view: View) -> float | None:
    """Seconds until the newest bar is full at the rate of its last minute; None without two readings of it."""
    bars = [motion for motion in view.motions if motion.bar is not None]
    if not bars or bars[-1].bar is None:
        return None
    newest = bars[-1].bar
    same = [motion for motion in bars if motion.bar and motion.bar[::2] == newest[::2] and motion.t >= view.now - BAR_RATE_S]
    if len(same) < 2 or same[0].bar is None or same[-1].t <= same[0].t:
        return None
    rate = (newest.done - same[0].bar.done) / (same[-1].t - same[0].t)
    return round((newest.total - newest.done) / rate, 1) if rate > 0 else None


def moved(view: View) -> tuple[str | None, str]:
    """(phase, what moved last, and how long it usually takes) for people."""
    return view.course.current, _last_move(view) + _and(baseline.usually(view))


def _and(text: str) -> str:
    return f"; {text}" if text else ""


def _last_move(view: View) -> str:
    if not view.motions:
        return words.answer(view.checks[-1].answer) if view.checks else "no progress seen yet"
    last = view.motions[-1]
    ago = view.now - last.t
    text = words.rates([last], last.seconds)[last.signal] if last.signal in words.BYTE_SIGNALS else words.quote(last.text)
    label = f"{last.signal} {text}" if last.signal in words.BYTE_SIGNALS else text
    return label if ago < 2 else f"{label} ({format_duration(ago)} ago)"


def _spoken(rates: dict[str, str]) -> str:
    return ", ".join(f"{signal} {text}" for signal, text in rates.items())


def _moving_evidence(moving: Sequence[Motion], window_s: float) -> tuple[Evidence, ...]:
    rows = []
    for signal in dict.fromkeys(motion.signal for motion in moving):
        mine = [motion for motion in moving if motion.signal == signal]
        unit = "B" if signal in words.BYTE_SIGNALS else ""
        rows.append(
            Evidence(signal=signal, value=sum(motion.amount for motion in mine), unit=unit, window_s=round(window_s, 3), points_to="slow")
        )
    return tuple(rows)


def _check_finding(view: View) -> tuple[Finding, ...]:
    """A server that answers while it still works is worth a word: perhaps the condition is wrong, but that is not proven."""
    answers = [check.answer for check in view.checks if check.answer.outcome == "answer" and not check.answer.matched]
    if not answers or view.question.about != "healthy":
        return ()
    last = answers[-1]
    return (Finding(code="check_mismatch", text=f"it answers {words.answer(last)}, which is not what the check wants ({last.mismatch})"),)
