"""Puts the verdicts of real starts into the documentation: python -m tests.real.verdicts

Read from the recordings that the tests left in $REAL_DIR: each start with how its waits ended (no wait on a server that lives may be
called hung).
"""

from __future__ import annotations

import sys
from pathlib import Path

from runbook.engine.journal import load_events
from runbook.model.event import StepEnded, Suspected, WaitEnded
from tests.real import pages
from tests.real.place import real_dir


def start_row(folder: Path) -> tuple[str, ...]:
    """How the waits of one start ended, and what was suspected on the way."""
    events = load_events(folder)
    waits = [event for event in events if isinstance(event, WaitEnded)]
    suspected = sorted({event.kind for event in events if isinstance(event, Suspected) and event.kind})
    up = next((event.seconds for event in events if isinstance(event, StepEnded) and event.step == "up"), 0.0)
    hung = sum(wait.verdict == "hung" for wait in waits)
    return folder.name, f"{up:.0f} s", ", ".join(wait.verdict for wait in waits), str(hung), ", ".join(suspected) or "nothing"


def table(heads: str, rows: list[tuple[str, ...]]) -> str:
    """As Markdown."""
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> int:
    """Write the table; 1 when a wait on a living server ended as hung."""
    starts = [start_row(folder) for folder in sorted((real_dir() / "stories").iterdir()) if (folder / "events.jsonl").exists()]
    first = table("| start | until it was up, or dead | waits ended | hung | suspected meanwhile |", starts)
    pages.replace("<!-- made by: python -m tests.real.verdicts -->", first)
    sys.stdout.write(f"{first}\n")
    return 1 if any(row[3] != "0" for row in starts) else 0


if __name__ == "__main__":
    sys.exit(main())
