"""Lines for GitHub Actions: one folded group for each step, its verdict below, an annotation for what did not pass.

The runner obeys `::command::` at the start of a line, and `##[command]` anywhere, whoever wrote it: so text of a host never has either.
"""

from __future__ import annotations

from runbook.model.event import StepEnded, StepStarted
from runbook.render.folded import FoldedLines


class GroupedLines(FoldedLines):
    """As Lines, with workflow commands."""

    def begin(self, event: StepStarted, title: str) -> str:
        """See `FoldedLines`."""
        return f"::group::{_data(title)}"

    def end(self, t: float) -> str:
        """See `FoldedLines`."""
        return "::endgroup::"

    def remark(self, event: StepEnded) -> list[str]:
        """An annotation."""
        if event.status in ("passed", "skipped"):
            return []
        level = "warning" if event.status == "unknown" or event.ignored else "error"
        title = f"{event.step}: {event.verdict}{'/' + event.kind if event.kind else ''}"
        return [f"::{level} title={_property(title)}::{_data(event.reason or title)}"]

    def harmless(self, line: str) -> str:
        """See `FoldedLines`."""
        line = line.replace("##[", "## [")
        return line.replace("::", ": :", 1) if line.lstrip().startswith("::") else line


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "## [")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
