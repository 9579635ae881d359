"""Lines for the log of a CI job: one fold for each step, its verdict below. What marks a fold is each CI's own."""

from __future__ import annotations

from runbook.model.event import AnyEvent, Interrupted, RunEnded, RunSuspended, StepEnded, StepStarted
from runbook.render.lines import Lines


class FoldedLines(Lines):
    """As Lines. Steps that run at the same time on several targets share a fold: folds do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self._open = False

    def begin(self, event: StepStarted, title: str) -> str:
        """The line that begins a fold."""
        raise NotImplementedError

    def end(self, t: float) -> str:
        """The line that ends the fold; `t` in unix seconds."""
        raise NotImplementedError

    def remark(self, event: StepEnded) -> list[str]:
        """What the CI shows beside the log."""
        return []

    def harmless(self, line: str) -> str:
        """The line without anything that the CI would obey."""
        return line

    def lines(self, event: AnyEvent) -> list[str]:
        """The lines for one event, with the folds around them."""
        made = [self.harmless(line) for line in super().lines(event)]
        match event:
            case StepStarted() if made and not self._open:
                self._open = True
                return [self.begin(event, made[0]), *made[1:]]
            case StepEnded() if self._open and self.story.running():
                return [*made, *self.remark(event)]
            case StepEnded():
                return [*self._close(event.t), *made, *self.remark(event)]
            case Interrupted() | RunEnded() | RunSuspended():
                return [*self._close(event.t), *made]
            case _:
                return made

    def heartbeat(self, now: float) -> str:
        """As Lines."""
        return self.harmless(super().heartbeat(now))

    def _close(self, t: float) -> list[str]:
        was, self._open = self._open, False
        return [self.end(t)] if was else []
