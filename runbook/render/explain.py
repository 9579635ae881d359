"""A verdict in plain words: what was looked at, how sure it is, what was not seen, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from runbook.model.event import AnyEvent
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Diagnosis
from runbook.render.inert import one_line
from runbook.render.story import tell

PAGE = "docs/reference/rules.md"
LONGEST = 600
MOST = 12
MEANS = {
    "passed": "every expectation held",
    "failed": "an answer was obtained, and it is not the expected one",
    "hung": "nothing moves any more, and that is proven: waiting on brings nothing",
    "slow": "the time was over while it was still moving: it may well finish",
    "crashed": "the process died, or one of its ranks did",
    "unreachable": "the host could not be reached: nothing is said about the server",
    "wrong_check": "the server answers, but this condition can never hold: the check is wrong, not the server",
    "wrong_server": "something else than our server answers on this port",
    "invalid_experiment": "what ran is not what was asked for, so its result says nothing about the question",
    "resource_held": "somebody holds the GPU memory",
    "refused": "a safety rule stopped the step before it acted",
    "undecided": "not enough could be seen to say more; this is no sign of a hang, nor of the opposite",
    "interrupted": "it was stopped from outside",
    "error": "a bug in runbook: the report in the log can be pasted into a ticket",
}
SURE = {
    "proven": "proven: the system itself said so",
    "strong": "strong: independent signals agree",
    "likely": "likely: one signal, and nothing against it",
}
PROVES = {"state": "state of the process (T is stopped, D waits for a device, Z is dead)", "body_bytes": "bytes in the body of the answer"}


def explain(events: Iterable[AnyEvent], rules: Mapping[str, str] | None = None, width: int = 80) -> str:
    """The text. `rules` maps a rule's id to what it looks at, in a sentence."""
    story = tell(events)
    step = story.deciding()
    end = step.end if step else None
    closing = story.closing
    if closing is None:
        where = ", ".join(one_line(one.start.step, 100) for one in story.running() if one.start) or "between two steps"
        return _wrapped(f"This run has not ended: it is at {where}, or its controller is gone.", width) + "\n"
    kind = f"/{one_line(closing.kind, 100)}" if closing.kind else ""
    claims = _claims(end.result.get("claims")) if end is not None and end.type == "assert" else []
    parts = [
        _part(
            f"{one_line(closing.verdict, 100)}{kind}: {MEANS.get(closing.verdict, 'a verdict that this version does not know')}.", [], width
        ),
        _part("What happened", [] if claims else [closing.reason], width),  # an assertion's reason repeats its claims
        _part("What does not hold", claims, width),
    ]
    if end is not None and end.diagnosis is not None:
        parts += _diagnosis(end.diagnosis, rules or {}, width)
    parts.append(_part("What to do", list(dict.fromkeys([*(end.diagnosis.next if end and end.diagnosis else ()), *closing.next])), width))
    parts.append(_part("Left behind", closing.left_behind, width))
    parts += [
        _part("Also noticed", [f"{item.text}" for item in story.findings], width),
        _part(_page(end.diagnosis if end else None), [], width),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _diagnosis(diagnosis: Diagnosis, rules: Mapping[str, str], width: int) -> list[str]:
    rule = rules.get(diagnosis.rule, "")
    seen = [_observation(item.signal, item.value, item.unit, item.points_to) for item in diagnosis.evidence]
    moved = [f"moved: {one_line(name, 60)} {one_line(value, 200)}" for name, value in diagnosis.progress.items()]
    sure = [SURE[diagnosis.confidence]] if diagnosis.confidence in SURE else []
    if diagnosis.phase:
        sure.append(f"it was in phase `{one_line(diagnosis.phase, 60)}`")
    if diagnosis.quiet_s is not None:
        sure.append(f"the last progress was {format_duration(diagnosis.quiet_s)} before")
    if diagnosis.eta_s is not None:
        sure.append(f"about {format_duration(diagnosis.eta_s)} are left at this rate")
    found = diagnosis.culprit
    named = ""
    if found:
        rank = f"rank {found.rank}" if found.rank is not None else ""
        named = ", ".join(part for part in (rank, found.title, f"pid {found.pid}" if found.pid else "", found.host, found.note) if part)
    return [
        _part(f"Rule `{one_line(diagnosis.rule, 60)}`", [rule] if rule else [], width),
        _part("What it saw", [*seen, *moved], width),
        _part("Who", [named] if named else [], width),
        _part("How sure", sure, width),
        _part("Not seen", list(diagnosis.blind) or ["nothing that the rule needed"], width),
    ]


def _observation(signal: str, value: object, unit: str, points_to: str) -> str:
    what = PROVES.get(signal, one_line(signal, 60).replace("_", " "))
    towards = f", which points to {one_line(points_to, 60)}" if points_to not in ("", "nothing") else ""
    if unit == "B" and isinstance(value, (int, float)):
        return f"{what}: {format_size(value)}{towards}"
    return f"{what}: {one_line(value, 200)}{' ' + one_line(unit, 40) if unit else ''}{towards}"


def _claims(claims: object) -> list[str]:
    found = []
    for claim in claims if isinstance(claims, list) else []:
        if isinstance(claim, dict) and claim.get("outcome") != "true":
            word = "does not hold" if claim.get("outcome") == "false" else "cannot be decided"
            told = claim.get("parts")
            parts = [part for part in told if isinstance(part, dict)] if isinstance(told, list) else []
            parts = [part for part in parts if len(str(part.get("value", ""))) <= 60]
            values = ", ".join(f"{part.get('source')} is {part.get('value')}" for part in parts[:6])
            because = f" ({claim['because']})" if claim.get("because") else ""
            found.append(f"{claim.get('that', '')} {word}{': ' + values if values else ''}{because}")
    return found


def _page(diagnosis: Diagnosis | None) -> str:
    anchor = f"#{one_line(diagnosis.rule, 60)}" if diagnosis and diagnosis.rule.isidentifier() else ""
    return f"More: {PAGE}{anchor}"


def _part(title: str, lines: Iterable[str], width: int) -> str:
    """A title and its lines; a title without lines is a sentence of its own, and a heading without lines is left out."""
    texts = [one_line(line, LONGEST) for line in lines if line]
    sentence = title.endswith(".") or title.startswith(("Rule", "More"))
    if not texts:
        return _wrapped(title, width) if sentence else ""
    shown = texts[:MOST] + ([f"and {len(texts) - MOST} more, in the transcript"] if len(texts) > MOST else [])
    return "\n".join([title, *(_wrapped(text, width, "  ") for text in shown)])


def _wrapped(text: str, width: int, indent: str = "") -> str:
    """Wrapped at blanks; a word longer than a line stays whole, so that it can be copied."""
    hang = indent + ("  " if indent else "")
    return textwrap.fill(
        text, max(30, width), initial_indent=indent, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
    )
