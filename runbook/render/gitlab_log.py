"""Lines for GitLab CI: one collapsible section for each step, its verdict below.

    ESC[0K section_start:UNIX:NAME CR ESC[0K TITLE          ESC[0K section_end:UNIX:NAME CR ESC[0K

A section needs the escape before it, and no text of a host has one: `Lines` writes control characters out.
"""

from __future__ import annotations

import re

from runbook.model.event import StepStarted
from runbook.render.folded import FoldedLines

CLEAR = "\x1b[0K"
LATEST_S = 4e9


class SectionLines(FoldedLines):
    """As Lines, with section markers. A name serves once in a job's log, so it is numbered."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._name = ""

    def begin(self, event: StepStarted, title: str) -> str:
        """See `FoldedLines`."""
        self._number += 1
        self._name = f"step_{self._number}_{re.sub(r'[^A-Za-z0-9_]+', '_', event.step)[:60]}"
        return f"{CLEAR}section_start:{_unix(event.t)}:{self._name}[collapsed=true]\r{CLEAR}{title}"

    def end(self, t: float) -> str:
        """See `FoldedLines`."""
        return f"{CLEAR}section_end:{_unix(t)}:{self._name}\r{CLEAR}"


def _unix(t: float) -> int:
    """A time in a journal that somebody made up may be any number."""
    return int(t) if 0.0 <= t < LATEST_S else 0
