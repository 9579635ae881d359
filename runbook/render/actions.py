"""Lines for GitHub Actions: one folded group for each step, its verdict below, an annotation for what did not pass.

The runner obeys `::command::` at the start of a line, and `##[command]` anywhere, whoever wrote it: so text of a host never has either.
"""

from __future__ import annotations

from runbook.model.event import AnyEvent, Interrupted, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.render.lines import Lines


class GroupedLines(Lines):
    """As Lines. Steps that run at the same time on several targets share a group: groups do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self._open = False

    def lines(self, event: AnyEvent) -> list[str]:
        """The lines for one event, with the workflow commands around them."""
        made = [harmless(line) for line in super().lines(event)]
        match event:
            case StepStarted() if made and not self._open:
                self._open = True
                return [f"::group::{_data(made[0])}", *made[1:]]
            case StepEnded() if self._open and self.story.running():
                return [*made, *_annotation(event)]
            case StepEnded():
                return [*self._close(), *made, *_annotation(event)]
            case Interrupted() | RunEnded() | RunSuspended():
                return [*self._close(), *made]
            case _:
                return made

    def heartbeat(self, now: float) -> str:
        """As Lines."""
        return harmless(super().heartbeat(now))

    def _close(self) -> list[str]:
        was, self._open = self._open, False
        return ["::endgroup::"] if was else []


def _annotation(event: StepEnded) -> list[str]:
    if event.status in ("passed", "skipped"):
        return []
    level = "warning" if event.status == "unknown" or event.ignored else "error"
    title = f"{event.step}: {event.verdict}{'/' + event.kind if event.kind else ''}"
    return [f"::{level} title={_property(title)}::{_data(event.reason or title)}"]


def harmless(line: str) -> str:
    """The line without anything that the runner would obey."""
    line = line.replace("##[", "## [")
    return line.replace("::", ": :", 1) if line.lstrip().startswith("::") else line


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "## [")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
