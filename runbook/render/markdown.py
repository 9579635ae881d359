"""`transcript.md`, in the reader's order: verdict, evidence, failing step, phases, environment, all steps, files."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable
from typing import Any

from runbook.model.event import AnyEvent, StepEnded
from runbook.model.units import format_duration
from runbook.render.story import StepStory, Story, tell

LAST_LINES = 30
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def markdown(events: Iterable[AnyEvent]) -> str:
    """The transcript of these events."""
    story = tell(events)
    parts = [
        _verdict(story),
        _evidence(story),
        _failing(story),
        _findings(story),
        _phases(story),
        _environment(story),
        _steps(story),
        _files(story),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cell(value: Any) -> str:
    """Text for a table cell: one line, pipes and markup escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = ANSI.sub("", text).replace("\r", " ").replace("\n", " ")
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", text)


def fence(text: str, language: str = "text") -> str:
    """A code block that its own content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{ANSI.sub('', text).rstrip()}\n{ticks}"


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cell(value) for value in row) + " |" for row in rows)])


def _verdict(story: Story) -> str:
    closing, header = story.closing, story.header
    title = cell(header.name or header.playbook) if header else "run"
    if closing is None:
        return f"# {title}: still running"
    kind = f" / {closing.kind}" if closing.kind else ""
    state = " (suspended)" if story.state == "suspended" else ""
    lines = [f"# {title}: {closing.verdict}{kind}{state}", cell(closing.reason)]
    facts = [f"exit code {closing.exit_code}"]
    if header:
        facts.append(f"run `{header.run}`")
        facts.append(f"started {datetime.datetime.fromtimestamp(header.t, datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC")
        facts.append(f"took {format_duration(story.last_t - header.t)}")
    if story.ended:
        facts.append(f"cleanup {story.ended.cleanup}")
    lines.append(", ".join(facts) + ".")
    if closing.left_behind:
        lines.append("**Left behind:**\n\n" + "\n".join(f"- {cell(line)}" for line in closing.left_behind))
    elif story.ended:
        lines.append("Nothing was left behind on any host.")
    if closing.next:
        lines.append("**Next:**\n\n" + "\n".join(f"- {cell(line)}" for line in closing.next))
    return "\n\n".join(lines)


def _evidence(story: Story) -> str:
    step = story.deciding()
    diagnosis = step.end.diagnosis if step and step.end else None
    if diagnosis is None:
        return ""
    lines = ["## Evidence", f"Rule `{diagnosis.rule}`" + (f", {diagnosis.confidence}" if diagnosis.confidence else "") + "."]
    if diagnosis.culprit:
        culprit = diagnosis.culprit
        named = [
            part
            for part in (
                culprit.title,
                f"pid {culprit.pid}" if culprit.pid else "",
                f"rank {culprit.rank}" if culprit.rank is not None else "",
            )
            if part
        ]
        lines.append("Culprit: " + cell(", ".join([*named, culprit.host])) + ".")
    if diagnosis.evidence:
        rows = [(item.signal, item.value, item.unit, item.points_to) for item in diagnosis.evidence]
        lines.append(table(("signal", "value", "unit", "points to"), rows))
    if diagnosis.progress:
        lines.append("What moved: " + "; ".join(f"{cell(name)} {cell(value)}" for name, value in diagnosis.progress.items()) + ".")
    if diagnosis.blind:
        lines.append("Could not be seen:\n\n" + "\n".join(f"- {cell(line)}" for line in diagnosis.blind))
    return "\n\n".join(lines)


def _failing(story: Story) -> str:
    step = story.deciding()
    if step is None or step.end is None:
        return ""
    end = step.end
    lines = [f"## The step: `{end.step}` ({end.type})", cell(end.reason)]
    if end.type == "assert":
        lines += [_claim(claim) for claim in end.result.get("claims", []) if claim["outcome"] != "true"]
    for name in ("stderr", "stdout", "text"):
        text = end.result.get(name)
        if isinstance(text, str) and text.strip():
            lines.append(f"Last lines of {name}:\n\n" + fence("\n".join(text.splitlines()[-LAST_LINES:])))
    return "\n\n".join(lines)


def _claim(claim: dict[str, Any]) -> str:
    rows = [(part["source"], part["value"]) for part in claim["parts"]]
    word = "does not hold" if claim["outcome"] == "false" else "cannot be decided"
    text = f"`{claim['that']}` {word}" + (f": {cell(claim['note'])}" if claim["note"] else "")
    because = f"\n\n> {cell(claim['because'])}" if claim["because"] else ""
    return text + because + ("\n\n" + table(("part", "value"), rows) if rows else "")


def _findings(story: Story) -> str:
    if not story.findings:
        return ""
    return "## Findings\n\n" + "\n".join(f"- `{finding.code}` {cell(finding.text)}" for finding in story.findings)


def _phases(story: Story) -> str:
    rows = []
    for step in story.steps:
        for phase, following in zip(step.phases, [*step.phases[1:], None], strict=False):
            until = following.t if following else (step.end.t if step.end else story.last_t)
            began = phase.t - (step.start.t if step.start else phase.t)
            rows.append(
                (phase.server or phase.step, phase.phase, format_duration(max(0.0, began)), format_duration(max(0.0, until - phase.t)))
            )
    return "## Phases\n\n" + table(("server", "phase", "after", "took"), rows) if rows else ""


def _environment(story: Story) -> str:
    rows: list[tuple[Any, ...]] = []
    for name, host in story.hosts.items():
        facts = host.facts
        rows.append((name, facts.get("hostname"), facts.get("user"), facts.get("python_version"), facts.get("cpus"), host.address))
    lines = ["## Environment"]
    if rows:
        lines.append(table(("target", "host", "user", "python", "cpus", "address"), rows))
    for step in story.steps:
        if step.end is not None and step.end.type == "launch":
            lines += _launch(step.end)
    if story.header:
        lines.append(f"runbook {story.header.version}; playbook `{story.header.playbook}` (sha256 {story.header.playbook_sha256[:12]})")
    return "\n\n".join(lines) if len(lines) > 1 else ""


def _launch(end: StepEnded) -> list[str]:
    argv = end.result.get("argv")
    if not isinstance(argv, list):
        return []
    lines = [f"`{end.step}` was started as:\n\n" + fence(" ".join(map(str, argv)), "sh")]
    versions = end.result.get("versions")
    if isinstance(versions, dict) and "~unknown" not in versions:
        lines.append(table(("package", "version"), sorted(versions.items())))
    return lines


def _steps(story: Story) -> str:
    rows = [_row(number, step) for number, step in enumerate(story.steps, 1)]
    return "## All steps\n\n" + table(("#", "step", "type", "host", "verdict", "took", "what"), rows) if rows else ""


def _row(number: int, step: StepStory) -> tuple[Any, ...]:
    end, start = step.end, step.start
    if end is None:
        return (number, start.step if start else "", start.type if start else "", start.host if start else "", "running", "", "")
    word = (end.verdict or end.status) + (f" / {end.kind}" if end.kind else "") + (" (ignored)" if end.ignored else "")
    part = "" if end.part == "main" else f" [{end.part}]"
    return (number, end.step + part, end.type, end.host, word, format_duration(end.seconds), end.reason[:300])


def _files(story: Story) -> str:
    rows = [(saved.file, saved.bytes, saved.about) for saved in story.evidence]
    listing = table(("file", "bytes", "what"), rows) if rows else ""
    return "\n\n".join(part for part in ("## Files", listing, "All events: `events.jsonl`.") if part)
