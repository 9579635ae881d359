"""Rules about answers: ready, the wrong server, a condition that can never hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from runbook.diagnose import words
from runbook.diagnose.progress import NOT_ASKED, hidden
from runbook.diagnose.view import Check, View
from runbook.model.sample import Blind, CheckSample, ListenerSample, Seen
from runbook.model.units import format_duration
from runbook.model.verdict import Culprit, Diagnosis, Evidence, Finding

NEVER_PROOF = frozenset({408, 425, 429, 502, 503, 504})
"""Busy, starting, or a proxy that speaks for a server which is not there yet."""
EQUAL_ANSWERS = 3
EQUAL_S = 5.0
SETTLE_RESET_S = 3.0
"""After a broken connection the server's death may be seen a moment later."""


def answered(view: View) -> Diagnosis | None:
    """passed or failed of a request: its one answer decides. A broken connection counts once the server's death had time to show."""
    if view.question.about != "request" or not view.checks:
        return None
    t, check = view.checks[-1]
    if check.outcome != "answer" and not view.question.final and view.now - t < SETTLE_RESET_S:
        return None
    if check.matched:
        return Diagnosis(
            verdict="passed", rule="answered", reason=f"answered {words.answer(check)}", evidence=_answer_evidence(check, "passed")
        )
    what = f"answered {words.answer(check)}, not as expected ({check.mismatch})" if check.outcome == "answer" else words.answer(check)
    body = f": {words.quote(check.body_head)}" if check.body_head else ""
    return Diagnosis(
        verdict="failed",
        rule="answered",
        reason=f"the request {what}{body}" if check.outcome == "answer" else f"the request got no answer: {what}",
        evidence=_answer_evidence(check, "failed"),
        blind=view.blind(),
        next=("the whole answer stands in the step's results",),
    )


def ready(view: View) -> Diagnosis | None:
    """passed: the check matched as often as asked, and the process that answers is ours as far as can be seen."""
    if view.question.about != "healthy" or not _matched_in_a_row(view):
        return None
    check = view.checks[-1].answer
    owner = _owner(view)
    if owner == "foreign" or (owner == "unseen" and view.profile.ready and view.course.ready_at is None):
        return None
    says = "; the server's log says that it is ready" if view.profile.ready else ""
    unseen = Finding(code="listener_unseen", text=f"the owner of the port could not be seen{says}")
    return Diagnosis(
        verdict="passed",
        rule="ready",
        confidence={"ours": "proven", "unasked": "strong", "unseen": "likely"}[owner],
        reason=f"ready: {check.url} answered {words.answer(check)}",
        phase="ready",
        evidence=_answer_evidence(check, "passed"),
        findings=(unseen,) if owner == "unseen" else (),
        blind=view.blind(),
    )


def wrong_server(view: View) -> Diagnosis | None:
    """wrong_server: the port is answered by a process outside our tree, seen twice, or once together with an answer."""
    if view.question.about == "gpu_free":
        return None
    readings = view.listeners()
    foreign = _foreign(readings[-1][1], view) if readings else ()
    if not foreign:
        return None
    answers = [check for check in view.checks if check.t >= readings[-1][0] and check.answer.outcome == "answer"]
    if not answers and not (len(readings) > 1 and _foreign(readings[-2][1], view)):
        return None
    owner = foreign[0]
    shared = any(one.ours for one in readings[-1][1])
    also = "; our server listens there too, so either may answer" if shared else "; the launched server does not listen there"
    return Diagnosis(
        verdict="wrong_server",
        rule="wrong_server",
        confidence="strong" if shared else "proven",
        reason=f"the port is held by {words.listener(owner)}, which this run did not launch{also}",
        phase=view.course.current,
        culprit=Culprit(host=view.samples[-1].host, pid=owner.pid, title=owner.title, note="listens on the server's port"),
        evidence=tuple(Evidence(signal="listener", value=words.listener(one), points_to="wrong_server") for one in foreign),
        blind=view.blind(),
        next=("stop it first: `kill: {match: {port: N}}`", "or launch on another port"),
    )


def never_matches(view: View) -> Diagnosis | None:
    """wrong_check: the engine's contract says that this condition can never hold. Certain at the first ready answer."""
    if view.question.about != "healthy" or not view.checks:
        return None
    check = view.checks[-1].answer
    impossible = _impossible(view, check)
    if check.matched or impossible is None:
        return None
    contract = view.profile.health
    instead = (
        f"check the status alone: `expect: {{status: {contract.ready_status[0]}}}`" if contract.ready_status else "check the status alone"
    )
    others = tuple(f"or ask a path with a body: `path: {path}`" for path in contract.alternatives[:1])
    return Diagnosis(
        verdict="wrong_check",
        rule="never_matches",
        confidence="proven",
        reason=f"the server answers {words.answer(check)}, and {impossible}: this check can never pass",
        phase=view.course.current,
        evidence=_answer_evidence(check, "wrong_check"),
        next=(instead, *others),
    )


def equal_answers(view: View) -> Diagnosis | None:
    """wrong_check: three equal answers over ≥ 5 s, after the ready mark or while nothing moves any more; of a server that is only looked at
    only that its path does not exist."""
    last = _equal_tail(view.checks)
    if view.question.about != "healthy" and not (view.question.about == "state" and last and last[-1].answer.status in words.NO_SUCH_PATH):
        return None
    if len(last) < EQUAL_ANSWERS or last[-1].t - last[0].t < EQUAL_S:
        return None
    check = last[-1].answer
    if check.matched or check.status in NEVER_PROOF:
        return None
    is_ready = view.course.ready_at is not None and view.course.ready_at <= last[0].t
    if not is_ready and not _at_rest(view, last[0].t):
        return None
    why = "its ready mark is in the log" if is_ready else "nothing in it moves any more"
    window = last[-1].t - last[0].t
    return Diagnosis(
        verdict="wrong_check",
        rule="equal_answers",
        confidence="strong" if is_ready else "likely",
        reason=f"{len(last)} equal answers over {format_duration(window)}, {words.answer(check)}, do not match "
        f"({check.mismatch}), and {why}",
        phase=view.course.current,
        quiet_s=view.quiet_s,
        evidence=(
            *_answer_evidence(check, "wrong_check"),
            Evidence(signal="equal_answers", value=len(last), window_s=round(window, 3), points_to="wrong_check"),
        ),
        blind=view.blind(),
        next=_advice(check) if view.question.about == "healthy" else (words.ask_another_path(check, view.question.about),),
    )


def _matched_in_a_row(view: View) -> bool:
    wanted = max(1, view.question.consecutive)
    tail = view.checks[-wanted:]
    return len(tail) == wanted and all(check.answer.matched for check in tail)


def _owner(view: View) -> str:
    """Who listens now: ours, foreign, unseen (could not look, or the owner is hidden), unasked (a bare URL)."""
    outcome = view.current("listeners")
    if isinstance(outcome, Blind) and outcome.reason in NOT_ASKED:
        return "unasked"
    if not isinstance(outcome, Seen):
        return "unseen"
    relevant = _relevant(outcome.value, view)
    if _foreign(outcome.value, view):
        return "foreign"
    return "ours" if any(one.ours for one in relevant) else "unseen"


def _foreign(listeners: Sequence[ListenerSample], view: View) -> tuple[ListenerSample, ...]:
    """Listeners that belong to somebody else. pid 0 is an owner that could not be seen, which proves nothing."""
    return tuple(one for one in _relevant(listeners, view) if not one.ours and one.pid > 0)


def _relevant(listeners: Sequence[ListenerSample], view: View) -> tuple[ListenerSample, ...]:
    """The kernel hands a connection to the listener with the exact address; only without one to those on every address."""
    url = view.checks[-1].answer.url if view.checks else ""
    try:
        asked = urlsplit(url).hostname or ""
    except ValueError:
        asked = ""
    exact = tuple(one for one in listeners if asked and asked in one.address)
    return exact or tuple(listeners)


def _impossible(view: View, check: CheckSample) -> str | None:
    """Why the profile's contract rules this condition out, or None. Only for the path that the contract is about."""
    contract, expect = view.profile.health, view.question.expect
    if _path(check.url) != contract.path or view.question.path != contract.path:
        return None
    if check.outcome == "timeout" and contract.min_latency is not None and check.latency_s < contract.min_latency:
        return f"{contract.path} of {view.profile.profile} takes at least {contract.min_latency} by design"
    if check.outcome != "answer" or check.status not in contract.ready_status:
        return None
    if not set(expect.status) & {*contract.ready_status, *contract.starting_status}:
        when_ready = f"{contract.path} of {view.profile.profile} answers {_listed(contract.ready_status)} when it is ready"
        return f"{when_ready}, never {_listed(expect.status)}"
    if contract.body != "empty" or check.body_bytes:
        return None
    if expect.json is not None or (expect.body is not None and not _matches_nothing(expect.body)):
        return f"the body of {contract.path} is empty by design of {view.profile.profile}"
    return None


def _path(url: str) -> str:
    """The path of a URL, empty when it cannot be read."""
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _matches_nothing(pattern: str) -> bool:
    """Whether a regex matches the empty text."""
    try:
        return re.search(pattern, "") is not None
    except re.error:
        return False


def _listed(statuses: Sequence[int]) -> str:
    return " or ".join(str(status) for status in statuses)


def _equal_tail(checks: Sequence[Check]) -> list[Check]:
    """The newest answers that are all the same in status, body and mismatch; a check without an answer ends the row."""
    tail: list[Check] = []
    for check in reversed(checks):
        one = check.answer
        if one.outcome != "answer" or (tail and _face(one) != _face(tail[0].answer)):
            break
        tail.insert(0, check)
    return tail


def _face(check: CheckSample) -> tuple[object, ...]:
    return (check.status, check.body_bytes, check.body_head, check.mismatch, check.matched)


def _at_rest(view: View, since: float) -> bool:
    """No load signal moved since then, and all of them could be read: blind is not at rest."""
    span = [sample for sample in view.samples if sample.t >= since]
    seen = [sample for sample in span if isinstance(sample.processes, Seen) and isinstance(sample.log, Seen)]
    return len(seen) >= 2 and not hidden(span, view.samples) and not view.moved_since(since, strong_only=False)


def _advice(check: CheckSample) -> tuple[str, ...]:
    if check.status in (401, 403, 407):
        return ("the server wants credentials: pass them by `headers:`", "or check a path that is open, as /health")
    if check.status in words.NO_SUCH_PATH:
        return ("this path does not exist there: ask one that does, as `path: /`; an engine's own stands in its profile",)
    if check.mismatch == "body":
        return (f"the body begins: {check.body_head[:80]!r}" if check.body_head else "the body is empty: check the status alone",)
    return ("compare the answer with the step's `expect`",)


def _answer_evidence(check: CheckSample, points_to: str) -> tuple[Evidence, ...]:
    rows = [Evidence(signal="check", value=check.outcome, points_to=points_to)]
    if check.status is not None:
        rows.append(Evidence(signal="status", value=check.status, points_to=points_to if check.mismatch == "status" else "nothing"))
    if check.body_bytes is not None:
        rows.append(
            Evidence(signal="body_bytes", value=check.body_bytes, unit="B", points_to=points_to if check.mismatch == "body" else "nothing")
        )
    rows.append(Evidence(signal="latency", value=round(check.latency_s, 4), unit="s"))
    return tuple(rows)
