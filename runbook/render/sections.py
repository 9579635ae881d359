"""The sections of the Markdown transcript: each a pure function of the story and of how much detail there is room for."""

from __future__ import annotations

import datetime
import html
import shlex
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from runbook.model.event import AnyEvent, SampleTaken, StepEnded
from runbook.model.sample import Seen
from runbook.model.units import format_duration, format_size
from runbook.model.verdict import Diagnosis
from runbook.render.inert import one_line
from runbook.render.marks import bullets, cell, code, details, fence, prose, table
from runbook.render.phases import phase_spans
from runbook.render.series import Curves, Series
from runbook.render.sparks import sparks
from runbook.render.story import StepStory, Story

LONG = 15
"""Rows from which a table is folded away."""
KEPT_LOG_LINES = 200
RULES_PAGE = "docs/reference/rules.md"
"""In the source tree: each rule's meaning, source and tests."""
LONGEST_REASON = 600
"""Bytes of the reason at the top; the whole stands at its step."""


class Detail(NamedTuple):
    """How much of a section: bytes of one text, rows of one table or list, lines of output; whether steps that passed are listed."""

    text: int
    rows: int
    lines: int
    passed: bool = True


class Tale(NamedTuple):
    """What the sections are made of: the story, its curves, and the last log lines seen in each step."""

    story: Story
    curves: list[Series]
    logs: dict[str, list[str]]


def read(events: Iterable[AnyEvent]) -> Tale:
    """Fold the events once, for all parts."""
    story, curves = Story(), Curves()
    logs: dict[str, deque[str]] = {}
    for event in events:
        story.apply(event)
        curves.apply(event)
        if isinstance(event, SampleTaken) and isinstance(event.sample.log, Seen) and event.sample.log.value.lines:
            logs.setdefault(event.step, deque(maxlen=KEPT_LOG_LINES)).extend(event.sample.log.value.lines)
    return Tale(story, curves.drawn(), {step: list(lines) for step, lines in logs.items()})


def verdict(tale: Tale, detail: Detail) -> str:
    """Title, reason, facts, what is left behind, what to do next."""
    story = tale.story
    closing, header = story.closing, story.header
    title = prose(header.name or header.playbook, detail.text) if header else "run"
    if closing is None:
        return f"# {title}: still running, or its controller is gone"
    kind = f" / {cell(closing.kind, detail.text)}" if closing.kind else ""
    lines = [f"# {title}: {cell(closing.verdict, detail.text)}{kind}{' (suspended)' if story.state == 'suspended' else ''}"]
    lines.append(prose(closing.reason, min(LONGEST_REASON, detail.text)))
    facts = [f"exit code {closing.exit_code}"]
    if header:
        facts.append(f"run {code(header.run, detail.text)}")
        facts.append(f"started {moment(header.t)}")
        facts.append(f"took {format_duration(story.last_t - header.t)}")
    if story.ended:
        facts.append(f"cleanup {cell(story.ended.cleanup, detail.text)}")
    lines.append(", ".join(facts) + ".")
    if closing.left_behind:
        lines.append("**Left behind:**\n\n" + bullets(closing.left_behind, detail.rows, detail.text))
    elif story.ended:
        lines.append("Nothing was left behind on any host.")
    if closing.next:
        lines.append("**Next:**\n\n" + bullets(closing.next, detail.rows, detail.text))
    return "\n\n".join(line for line in lines if line)


def moment(t: float) -> str:
    """A time of day that means the same everywhere; a time that no calendar has is given as a number."""
    try:
        return f"{datetime.datetime.fromtimestamp(t, datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"at {t}"


def evidence(tale: Tale, detail: Detail) -> str:
    """The rule, the culprit, what was seen and what could not be."""
    step = tale.story.deciding()
    diagnosis = step.end.diagnosis if step and step.end else None
    if diagnosis is None:
        return ""
    sure = f", {cell(diagnosis.confidence, detail.text)}" if diagnosis.confidence else ""
    page = code(f"{RULES_PAGE}#{diagnosis.rule}", detail.text)
    lines = ["## Evidence", f"Rule {code(diagnosis.rule, detail.text)}{sure}; what it asks for: {page}.", culprit(diagnosis, detail)]
    if diagnosis.evidence:
        rows = [(item.signal, item.value, item.unit, item.points_to) for item in diagnosis.evidence]
        lines.append(_rows(("signal", "value", "unit", "points to"), rows, detail))
    if diagnosis.progress:
        moved = [f"{cell(name, detail.text)} {cell(value, detail.text)}" for name, value in diagnosis.progress.items()]
        lines.append("What moved: " + "; ".join(moved[: detail.rows]) + ".")
    if diagnosis.blind:
        lines.append("Could not be seen:\n\n" + bullets(diagnosis.blind, detail.rows, detail.text))
    return "\n\n".join(line for line in lines if line)


def culprit(diagnosis: Diagnosis, detail: Detail) -> str:
    """The process or rank that is named, or nothing."""
    found = diagnosis.culprit
    if found is None:
        return ""
    rank = f"rank {found.rank}" if found.rank is not None else ""
    named = [found.title, f"pid {found.pid}" if found.pid else "", rank, found.host, found.note]
    return "Culprit: " + cell(", ".join(one_line(part, detail.text) for part in named if part), detail.text) + "."


def failing(tale: Tale, detail: Detail) -> str:
    """The step that decided, with its claims or its last lines."""
    step = tale.story.deciding()
    if step is None or step.end is None:
        return ""
    end = step.end
    claims = end.result.get("claims") if end.type == "assert" else None
    open_claims = [claim for claim in claims or [] if claim.get("outcome") != "true"] if _are_mappings(claims) else []
    lines = [f"## The step: {code(end.step, detail.text)} ({cell(end.type, detail.text)})"]
    lines += [] if open_claims else [prose(end.reason, detail.text)]  # an assertion's reason repeats its claims
    lines += [_claim(claim, detail) for claim in open_claims[: detail.rows]]
    for name in ("stderr", "stdout", "text"):
        text = end.result.get(name)
        if isinstance(text, str) and text.strip():
            lines.append(f"Last lines of {name}:\n\n" + fence(text, most=detail.lines, longest=min(500, detail.text)))
    if end.step in tale.logs:
        log = "\n".join(tale.logs[end.step])
        lines.append("Last lines of the server's log:\n\n" + fence(log, most=detail.lines, longest=min(500, detail.text)))
    return "\n\n".join(line for line in lines if line)


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _claim(claim: dict[str, Any], detail: Detail) -> str:
    word = "does not hold" if claim.get("outcome") == "false" else "cannot be decided"
    note, because, parts = claim.get("note"), claim.get("because"), claim.get("parts")
    lines = [f"{code(claim.get('that', ''), detail.text)} {word}" + (f": {cell(note, detail.text)}" if note else "")]
    if because:
        lines.append(f"> {prose(because, detail.text)}")
    if _are_mappings(parts):
        rows = [(part.get("source", ""), part.get("value", "")) for part in parts or []]
        lines.append(_rows(("part", "value"), rows, detail))
    return "\n\n".join(line for line in lines if line)


def findings(tale: Tale, detail: Detail) -> str:
    """What was noticed on the way."""
    found = tale.story.findings
    rows = [f"- {code(item.code, detail.text)} {cell(item.text, detail.text)}" for item in found[: detail.rows]]
    more = [f"- and {len(found) - detail.rows:,} more"] if len(found) > detail.rows else []
    return "## Findings\n\n" + "\n".join([*rows, *more]) if found else ""


def plots(tale: Tale, detail: Detail) -> str:
    """What moved, as text."""
    lines = sparks(tale.curves)
    return "## What moved\n\n" + fence("\n".join(lines)) if lines else ""


def phases(tale: Tale, detail: Detail) -> str:
    """When each phase began and how long it took; with ranks where they are known."""
    rows = [row for step in tale.story.steps for row in _phases(step, tale.story.last_t)]
    head: tuple[str, ...] = ("server", "phase", "after", "took", "usually", "ranks")
    if not any(row[4] for row in rows):
        head, rows = (*head[:4], head[5]), [(*row[:4], row[5]) for row in rows]
    return _section("Phases", head, rows, detail)


def _phases(step: StepStory, last_t: float) -> list[tuple[Any, ...]]:
    told = step.end.result.get("phases") if step.end else None
    if step.end and _are_mappings(told) and told:
        usual = _usual(step.end.result.get("usual"))
        return [
            (
                step.end.step,
                p.get("name"),
                _time(p.get("start")),
                _time(p.get("seconds")),
                usual.get(str(p.get("name")), ""),
                _ranks(p.get("ranks")),
            )
            for p in told
        ]
    begun = step.start.t if step.start else None
    rows = []
    for span in phase_spans(step, last_t):
        after = format_duration(max(0.0, span.phase.t - begun)) if begun is not None else ""
        took = "not ended" if span.open and step.end is None else format_duration(span.end - span.phase.t)
        rows.append((span.lane, span.phase.phase, after, took, "", ""))
    return rows


def _usual(told: Any) -> dict[str, str]:
    """What each phase took in earlier starts; of `ready`, the whole start."""
    if not isinstance(told, dict) or not isinstance(told.get("phases"), list):
        return {}
    found = {}
    for row in [*told["phases"], told.get("ready")]:
        if isinstance(row, dict) and all(isinstance(row.get(name), (int, float)) for name in ("shortest_s", "longest_s", "runs")):
            runs = f"{row['runs']} run{'' if row['runs'] == 1 else 's'}"
            found[str(row.get("name"))] = f"{format_duration(row['shortest_s'])} to {format_duration(row['longest_s'])} ({runs})"
    return found


def _time(seconds: Any) -> str:
    return format_duration(seconds) if isinstance(seconds, (int, float)) else "not ended"


def _ranks(ranks: Any) -> str:
    return ", ".join(map(str, ranks)) if isinstance(ranks, list) else ""


def environment(tale: Tale, detail: Detail) -> str:
    """Hosts, command lines, versions: what a maintainer asks for."""
    story = tale.story
    lines = ["## Environment"]
    rows: list[tuple[Any, ...]] = []
    for name, host in story.hosts.items():
        facts = host.facts
        rows.append((name, facts.get("hostname"), facts.get("user"), facts.get("python_version"), facts.get("cpus"), host.address))
    if rows:
        lines.append(_rows(("target", "host", "user", "python", "cpus", "address"), rows, detail))
    for step in story.steps:
        if step.end is not None and step.end.type == "launch":
            lines += _launch(step.end, detail)
    if story.header:
        head = story.header
        book = f"playbook {code(head.playbook, detail.text)} (sha256 {cell(head.playbook_sha256[:12])})"
        lines.append(f"runbook {cell(head.version, detail.text)}; {book}")
    if story.masked:
        lines.append(f"Masked in this transcript: {cell(story.masks, detail.text)}.")
    return "\n\n".join(lines) if len(lines) > 1 else ""


def _launch(end: StepEnded, detail: Detail) -> list[str]:
    argv = end.result.get("argv")
    if not isinstance(argv, list):
        return []
    lines = [f"{code(end.step, detail.text)} was started as:\n\n" + fence(shlex.join(map(str, argv)), "sh", longest=detail.text)]
    versions = end.result.get("versions")
    if isinstance(versions, dict) and "~unknown" not in versions:
        lines.append(_rows(("package", "version"), sorted(versions.items()), detail))
    return lines


def steps(tale: Tale, detail: Detail) -> str:
    """All steps; those that did not pass, where there is little room."""
    numbered = list(enumerate(tale.story.steps, 1))
    if not detail.passed:
        numbered = [(n, step) for n, step in numbered if step.end is None or step.end.status not in ("passed", "skipped")]
    rows = [_step(number, step) for number, step in numbered]
    title = "All steps" if detail.passed else "Steps that did not pass"
    return _section(title, ("#", "step", "type", "host", "verdict", "took", "what"), rows, detail)


def _step(number: int, step: StepStory) -> tuple[Any, ...]:
    end, start = step.end, step.start
    if end is None:
        return (number, start.step if start else "", start.type if start else "", start.host if start else "", "running", "", "")
    word = (end.verdict or end.status) + (f" / {end.kind}" if end.kind else "") + (" (ignored)" if end.ignored else "")
    part = "" if end.part == "main" else f" [{end.part}]"
    return (number, end.step + part, end.type, end.host, word, format_duration(end.seconds), one_line(end.reason, 300))


def raw(tale: Tale, detail: Detail) -> str:
    """Diffs of patches, what probes showed and what their silence excludes, output of steps that passed."""
    parts = []
    deciding = tale.story.deciding()
    for step in tale.story.steps:
        if step.end is not None and step is not deciding:
            parts += _raw(step.end, tale.logs.get(step.end.step, []), detail)
    return "## Raw output\n\n" + "\n\n".join(parts[: detail.rows]) if parts and detail.lines else ""


def _raw(end: StepEnded, log: list[str], detail: Detail) -> list[str]:
    parts = []
    name = f"<code>{html.escape(one_line(end.step, 60))}</code>"  # inside a tag Markdown's own escapes mean nothing
    longest = min(500, detail.text)
    if isinstance(diff := end.result.get("diff"), str) and diff.strip():
        parts.append(details(f"{name}: what was changed", fence(diff, "diff", most=detail.lines * 20, longest=longest)))
    if _are_mappings(hits := end.result.get("hits")) and hits:
        shown = "\n".join(one_line(hit, longest) for hit in hits[: detail.lines])
        parts.append(details(f"{name}: {len(hits):,} hits", fence(shown, "json")))
    if _are_mappings(excluded := end.result.get("excluded")) and excluded:
        rows = [(row.get("explanation"), row.get("by")) for row in excluded]
        parts.append(details(f"{name}: what excludes each other explanation", _rows(("explanation", "excluded by"), rows, detail)))
    for stream in ("stdout", "stderr"):
        if isinstance(text := end.result.get(stream), str) and text.strip():
            parts.append(details(f"{name}: last lines of {stream}", fence(text, most=detail.lines, longest=longest)))
    if log:
        parts.append(details(f"{name}: last lines of the server's log", fence("\n".join(log), most=detail.lines, longest=longest)))
    return parts


def files(tale: Tale, detail: Detail) -> str:
    """Evidence files, and where all events are."""
    rows = [(saved.file, format_size(saved.bytes), saved.about) for saved in tale.story.evidence]
    listing = _rows(("file", "size", "what"), rows, detail) if rows else ""
    return "\n\n".join(part for part in ("## Files", listing, "All events: `events.jsonl`.") if part)


def _section(title: str, head: Sequence[str], rows: list[tuple[Any, ...]], detail: Detail) -> str:
    """A table under its heading; a long one folded away."""
    if not rows:
        return ""
    body = _rows(head, rows, detail)
    return f"## {title}\n\n" + (details(f"{len(rows):,} rows", body) if len(rows) > LONG else body)


def _rows(head: Sequence[str], rows: Sequence[Sequence[Any]], detail: Detail) -> str:
    """The first rows there is room for; the rest is counted."""
    made = table(head, rows[: detail.rows], detail.text)
    return made if len(rows) <= detail.rows else f"{made}\n\nand {len(rows) - detail.rows:,} more in `events.jsonl`."
