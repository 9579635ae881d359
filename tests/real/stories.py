"""Puts the transcripts of the founding story on SGLang into the documentation, cut: python -m tests.real.stories

Of each run that tests/real/test_sglang_story.py kept in $REAL_DIR/stories: verdict, reason and cleanup, the claims of its assertions, the
phases of the server. Places of this machine are named, nothing else is changed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

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
KEPT = ("", "Evidence", "Assertions", "Phases")
"""Sections of a transcript; the first is what stands before them."""
LONGEST, LINES = 220, 40


def shown(folder: Path) -> str:
    """The essence of a transcript."""
    text = placed((folder / "transcript.md").read_text(encoding="utf-8"))
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    kept = [head, *(f"## {part}" for part in sections if part.split("\n", 1)[0].strip() in KEPT)]
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for part in kept for line in part.strip().splitlines()]
    return "\n".join(lines[:LINES])


def main() -> None:
    """All that are there, in order."""
    parts = []
    for name, title in TITLES.items():
        folder = real_dir() / "stories" / name
        if (folder / "transcript.md").exists():
            parts.append(f"### {title}\n\n```text\n{shown(folder)}\n```")
    pages.replace("<!-- made by: python -m tests.real.stories -->", "\n\n".join(parts))
    sys.stdout.write(f"{len(parts)} transcripts in {pages.PAGE}\n")


if __name__ == "__main__":
    main()
