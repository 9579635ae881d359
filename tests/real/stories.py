"""Puts the transcripts of the founding story on SGLang into the documentation, cut: python -m tests.real.stories

Of each run that tests/real/test_sglang_story.py kept in $REAL_DIR/stories: verdict, reason and cleanup, the step that decided and its evidence, the
phases of the server. Places of this machine are named, nothing else is changed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from runbook.engine.journal import load_events
from runbook.model.event import RunEnded, StepEnded
from tests.real import pages
from tests.real.place import real_dir
from tests.real.recordings import placed

TITLES = {
    "passed": "Passed: three layers are fused",
    "failed": "Failed: `use_aux_hidden_state: false` in the draft's config.json",
    "wrong_check": "Wrong check: one line changed to `expect: {body: ok}`",
    "crashed": "Crashed: layer ids that count hidden states, so that the last is past the end",
    "invalid_experiment": "Invalid experiment: one line changed, to patch another copy of the file",
}
KEPT = ("Evidence", "Phases")
"""Sections of a transcript, by how their titles begin; beside what stands before them all."""
LONGEST, LINES = 200, 60
SHORT, VALUES = 60, 4
"""Values of a claim that are shown: so long at most, and so many."""


def shown(folder: Path) -> str:
    """The essence of a transcript."""
    text = placed((folder / "transcript.md").read_text(encoding="utf-8"))
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    kept = [head, *(f"## {part}" for part in sections if part.startswith(KEPT))]
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for part in kept for line in [*part.strip().splitlines(), ""]]
    return "\n".join(lines[:LINES]).strip()


def claimed(folder: Path) -> str:
    """What the assertions asked, and the values that they saw."""
    told = []
    for event in load_events(folder):
        for claim in event.result.get("claims", []) if isinstance(event, StepEnded) else []:
            values = [f"{part['source']} = {part['value']}" for part in claim["parts"] if len(part["value"]) < SHORT]
            told.append(f"{claim['outcome']}: {claim['that']}\n    " + "\n    ".join(values[:VALUES]))
    return "\n\n# Claims\n\n" + "\n".join(told) if told else ""


def main() -> None:
    """All that are there, in order. A run that did not end as its name says is not shown."""
    parts = []
    for name, title in TITLES.items():
        folder = real_dir() / "stories" / name
        ends = [event for event in load_events(folder) if isinstance(event, RunEnded)] if folder.exists() else []
        if ends and ends[-1].verdict == name:
            parts.append(f"### {title}\n\n```text\n{shown(folder)}{claimed(folder)}\n```")
    pages.replace("<!-- made by: python -m tests.real.stories -->", "\n\n".join(parts))
    sys.stdout.write(f"{len(parts)} transcripts in {pages.PAGE}\n")


if __name__ == "__main__":
    main()
