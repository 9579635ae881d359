"""A diagnosis as a short text: the verdict, what it rests on, what was not seen, what to do."""

from __future__ import annotations

from runbook.model.units import format_duration
from runbook.model.verdict import Diagnosis, Evidence
from runbook.render.inert import one_line

LONGEST = 600
MOST = 12


def as_text(diagnosis: Diagnosis) -> str:
    """Lines for a terminal or a pipe; the first one holds the verdict."""
    kind = f"/{diagnosis.kind}" if diagnosis.kind else ""
    sure = f", {diagnosis.confidence}" if diagnosis.confidence else ""
    lines = [f"{diagnosis.verdict.upper()}{kind}{sure}: {one_line(diagnosis.reason, LONGEST)}"]
    if diagnosis.phase:
        lines.append(f"phase: {one_line(diagnosis.phase, 80)}")
    lines += [f"moving: {one_line(name, 60)} {one_line(value, 200)}" for name, value in list(diagnosis.progress.items())[:MOST]]
    if diagnosis.eta_s is not None:
        lines.append(f"left: about {format_duration(diagnosis.eta_s)} at this rate")
    if diagnosis.quiet_s is not None:
        lines.append(f"last progress: {format_duration(diagnosis.quiet_s)} ago")
    found = diagnosis.culprit
    if found is not None:
        rank = f"rank {found.rank}" if found.rank is not None else ""
        named = (rank, f"pid {found.pid}" if found.pid else "", found.title, found.host, found.note)
        lines.append("who: " + one_line(", ".join(part for part in named if part), LONGEST))
    lines += [f"evidence: {_evidence(one)}" for one in diagnosis.evidence[:MOST]]
    lines += [f"note ({one.code}): {one_line(one.text, LONGEST)}" for one in diagnosis.findings[:MOST]]
    lines += [f"not seen: {one_line(text, LONGEST)}" for text in diagnosis.blind[:MOST]]
    lines += [f"next: {one_line(text, LONGEST)}" for text in diagnosis.next[:MOST]]
    return "\n".join([*lines, f"rule: {one_line(diagnosis.rule, 80)}"]) + "\n"


def _evidence(one: Evidence) -> str:
    unit = f" {one_line(one.unit, 20)}" if one.unit else ""
    window = f" over {format_duration(one.window_s)}" if one.window_s else ""
    towards = f" (points to {one.points_to})" if one.points_to not in ("", "nothing") else ""
    return f"{one_line(one.signal, 60)} {one_line(one.value, 300)}{unit}{window}{towards}"
