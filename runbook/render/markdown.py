"""`transcript.md`, in the reader's order: verdict, evidence, failing step, what moved, phases, environment, all steps, files.

Where it does not fit, parts are shortened or left out in one fixed order, LADDER. Verdict, its evidence and the step that decided
are only ever shortened, and the end says what is missing and where the whole is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runbook.model.event import AnyEvent
from runbook.render import sections
from runbook.render.budget import DEFAULT, Budget, budget_of
from runbook.render.marks import cell, fence, table
from runbook.render.sections import Detail, Tale

__all__ = ["cell", "fence", "markdown", "table"]

Section = Callable[[Tale, Detail], str]

SECTIONS: dict[str, Section] = {
    "verdict": sections.verdict,
    "evidence": sections.evidence,
    "failing step": sections.failing,
    "findings": sections.findings,
    "plots": sections.plots,
    "phases": sections.phases,
    "environment": sections.environment,
    "steps": sections.steps,
    "raw output": sections.raw,
    "files": sections.files,
}
FULL = Detail(text=2_000, rows=200, lines=30)
SHORT = Detail(text=300, rows=10, lines=10)
NEVER_LEFT_OUT = ("verdict", "evidence", "failing step")

LADDER: tuple[tuple[str, Detail | None], ...] = (
    ("raw output", SHORT),
    ("raw output", None),
    ("plots", None),
    ("steps", Detail(text=300, rows=40, lines=0, passed=False)),
    ("environment", SHORT),
    ("phases", SHORT),
    ("environment", None),
    ("phases", None),
    ("files", SHORT),
    ("findings", SHORT),
    ("steps", None),
    ("files", None),
    ("findings", Detail(text=120, rows=3, lines=0)),
    *((name, SHORT) for name in reversed(NEVER_LEFT_OUT)),
    ("findings", None),
    *((name, Detail(text=120, rows=4, lines=4)) for name in reversed(NEVER_LEFT_OUT)),
    *((name, Detail(text=40, rows=2, lines=2)) for name in reversed(NEVER_LEFT_OUT)),
    *((name, Detail(text=24, rows=1, lines=1)) for name in reversed(NEVER_LEFT_OUT)),
)
"""Section and its next shorter form, None: left out. Applied from the top until the text fits."""


def markdown(events: Iterable[AnyEvent], budget: int | Budget = DEFAULT) -> str:
    """The transcript of these events, within `budget` (a number: UTF-8 bytes). Raises ValueError for a budget under 2,000."""
    limit = budget_of(budget)
    tale = sections.read(events)
    parts = {name: build(tale, FULL) for name, build in SECTIONS.items()}
    shorter: dict[str, str] = {}
    text = _assemble(parts, shorter, limit)
    for name, detail in LADDER:
        if limit.fits(text):
            break
        made = SECTIONS[name](tale, detail) if detail else ""
        if made != parts[name]:
            shorter[name] = "shortened" if made else "left out"
            parts[name] = made
            text = _assemble(parts, shorter, limit)
    return text


def _assemble(parts: dict[str, str], shorter: dict[str, str], limit: Budget) -> str:
    shown = [part for part in parts.values() if part]
    if shorter:
        what = [
            f"{word}: {', '.join(names)}" for word in ("left out", "shortened") if (names := [n for n, w in shorter.items() if w == word])
        ]
        shown.append(
            f"*Cut to fit {limit} ({'; '.join(what)}). The whole is in the run's folder: "
            "`events.jsonl`, and `runbook report RUN --format html` makes a page of it.*"
        )
    return "\n\n".join(shown) + "\n"
