"""`junit.xml`: one testcase for each step's last attempt, so that CI shows which step decided. Valid for Jenkins' xunit schema.

failed → failure; unknown (slow, undecided, unreachable) and an error of ours → error: the answer was not obtained. A failure that
was ignored is passed, with a note. A run that ended badly without such a step has one testcase of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from runbook.model.event import AnyEvent, StepEnded
from runbook.render.inert import last_lines, one_line
from runbook.render.story import StepStory, Story, tell

LAST_LINES = 30
LONGEST_NAME = 200
MOST = 50
"""Rows of evidence in a failure."""


def junit(events: Iterable[AnyEvent]) -> str:
    """The XML document, UTF-8."""
    story = tell(events)
    suite = Element("testsuite", name=_name(story))
    _properties(suite, story)
    cases = [_case(suite, step, story) for step in last_attempts(story)]
    kinds = [kind for kind in cases if kind]
    if (kind := _run_case(suite, story, known=bool({"failure", "error"} & set(kinds)))) is not None:
        kinds.append(kind)
    if notes := [f"{one_line(item.code)}: {one_line(item.text)}" for item in story.findings]:
        SubElement(suite, "system-out").text = "\n".join(notes)
    counts = {"tests": len(suite.findall("testcase")), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    suite.attrib.update({key: str(count) for key, count in counts.items()})
    suite.attrib.update(skipped=str(kinds.count("skipped")), time=_seconds(story.last_t - story.header.t if story.header else 0.0))
    if story.header:
        suite.attrib["timestamp"] = _timestamp(story.header.t)
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def last_attempts(story: Story) -> list[StepStory]:
    """The last attempt of each step on each target and loop item, in the order in which the steps began."""
    last: dict[tuple[str, str, int | None], StepStory] = {}
    for step in story.steps:
        event = step.end or step.start
        if event is not None:
            last[event.step, event.host, event.item] = step
    return list(last.values())


def _name(story: Story) -> str:
    return one_line((story.header.name or story.header.playbook) if story.header else "run", LONGEST_NAME) or "run"


def _properties(suite: Element, story: Story) -> None:
    """What a CI server shows beside the suite: the run's verdict, and that of each step."""
    closing, header = story.closing, story.header
    values: dict[str, str] = {"state": story.state}
    if header:
        values |= {"run": header.run, "playbook": header.playbook, "runbook": header.version}
    if closing:
        values |= {"verdict": closing.verdict, "kind": closing.kind or "", "exit_code": str(closing.exit_code), "reason": closing.reason}
    for step in last_attempts(story):
        if step.end is not None and step.end.verdict is not None:
            values[f"step.{title(step)}.verdict"] = word(step.end)
            if step.end.diagnosis:
                values[f"step.{title(step)}.rule"] = step.end.diagnosis.rule
    element = SubElement(suite, "properties")
    for name, value in values.items():
        SubElement(element, "property", name=one_line(name, LONGEST_NAME), value=one_line(value))


def title(step: StepStory) -> str:
    """A step's name among the testcases: id, target, loop item."""
    event = step.end or step.start
    if event is None:
        return ""
    host = f" [{event.host}]" if event.host else ""
    return event.step + host + (f" item {event.item + 1}" if event.item is not None else "")


def word(end: StepEnded) -> str:
    """`hung/stopped`."""
    return f"{end.verdict or end.status}{'/' + end.kind if end.kind else ''}"


def _case(suite: Element, step: StepStory, story: Story) -> str | None:
    """One testcase; answers what it is counted as: failure, error, skipped, or None for passed."""
    end, event = step.end, step.end or step.start
    case = SubElement(suite, "testcase", name=one_line(title(step), LONGEST_NAME), classname=_name(story))
    if end is None:
        case.set("time", _seconds(story.last_t - event.t if event else 0.0))
        return _mark(case, "error", "unfinished", "the journal has no end of this step: it is running, or its controller is gone")
    case.set("time", _seconds(end.seconds))
    if end.status == "skipped":
        return _mark(case, "skipped", "skipped", end.reason)
    excused = "ignored" if end.ignored else "rescued" if end.rescued else ""
    kind = None
    if end.status != "passed" and not excused:
        kind = _mark(case, "error" if end.status == "unknown" or end.verdict == "error" else "failure", word(end), end.reason, _body(end))
    notes = [f"{word(end)}, {excused}: {one_line(end.reason)}"] if excused and end.status != "passed" else []
    notes += [f"attempt {end.attempt}"] if end.attempt > 1 else []
    if notes:
        SubElement(case, "system-out").text = "\n".join(one_line(note) for note in notes)
    return kind


def _mark(case: Element, tag: str, kind: str, reason: str, body: str = "") -> str:
    message = one_line(f"{kind}: {reason}" if reason else kind)
    SubElement(case, tag, type=one_line(kind, LONGEST_NAME), message=message).text = body or message
    return tag


def _body(end: StepEnded) -> str:
    """Reason, evidence, and the last lines of output."""
    lines = [one_line(end.reason)]
    if end.diagnosis:
        seen = end.diagnosis.evidence[:MOST]
        lines += [f"evidence: {one_line(item.signal, 200)} = {one_line(item.value, 500)} {one_line(item.unit, 100)}" for item in seen]
        lines += [f"not seen: {one_line(text)}" for text in end.diagnosis.blind[:MOST]]
        lines += [f"next: {one_line(text)}" for text in end.diagnosis.next[:MOST]]
    for stream in ("stderr", "stdout", "text"):
        if isinstance(text := end.result.get(stream), str) and text.strip():
            lines += [f"--- last lines of {stream}", *last_lines(text, LAST_LINES)]
    return "\n".join(line.rstrip() for line in lines)


def _run_case(suite: Element, story: Story, *, known: bool) -> str | None:
    """A testcase for a run whose bad end no step shows: no end, an interruption, a cleanup that failed."""
    closing = story.closing
    if closing is not None and (closing.verdict == "passed" or known):
        return None
    case = SubElement(suite, "testcase", name="the run", classname=_name(story), time=_seconds(0.0))
    if closing is None:
        return _mark(case, "error", "unfinished", "the journal has no end: the run goes on, or its controller is gone")
    tag = "error" if closing.verdict in ("undecided", "unreachable", "slow", "error", "interrupted") else "failure"
    return _mark(case, tag, f"{closing.verdict}{'/' + closing.kind if closing.kind else ''}", closing.reason)


def _seconds(value: float) -> str:
    return f"{min(max(0.0, value), 1e9):.3f}"


def _timestamp(t: float) -> str:
    """ISO 8601 without a zone, UTC, as the schema's readers expect; the epoch for a time that no calendar has."""
    try:
        return f"{datetime.datetime.fromtimestamp(t, datetime.timezone.utc):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"
