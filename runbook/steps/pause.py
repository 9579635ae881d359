"""pause: let somebody look, and ask."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from runbook.hosts.base import Cancelled
from runbook.model.units import Duration
from runbook.steps.base import Step, StepContext, StepResult

GO_ON = "press Enter to go on"


class Pause(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait for somebody at the terminal: Enter goes on, what was typed is the answer.

    Without a terminal nothing ever asks: then the answer is `default`, and without one the step is refused. With `for` alone it is a
    plain wait, with or without a terminal.
    """

    TYPE: ClassVar[str] = "pause"
    SHORTHAND: ClassVar[str | None] = "prompt"
    TIMEOUT: ClassVar[str] = "1h"
    NEEDS_HOST: ClassVar[bool] = False
    RESULTS: ClassVar[dict[str, str]] = {"answer": "what was typed; the default when nothing was"}
    EXAMPLE: ClassVar[str] = "id: look\npause: {prompt: 'Is the box yours now?', default: 'no'}"

    prompt: Annotated[str, Meta(description="what to ask or tell")] = ""
    default: Annotated[str | None, Meta(description="the answer when nothing is typed, or nobody can be asked")] = None
    for_: Annotated[Duration | None, Meta(description="go on after this long without an answer")] = msgspec.field(name="for", default=None)

    def plan(self) -> list[str]:
        """One line."""
        limit = f", for at most {self.for_}" if self.for_ is not None else ""
        without = "refused" if self.default is None else f"taken as `{self.default}`"
        if not self.prompt and self.for_ is not None:
            return [f"wait {self.for_}"]
        return [f"ask `{self.prompt or GO_ON}`{limit}; without a terminal it is {without}"]

    def run(self, ctx: StepContext) -> StepResult:
        """Ask, or take the default."""
        if ctx.check_mode:
            return StepResult(verdict="passed", reason=f"would {self.plan()[0]}")
        if not ctx.can_ask:
            return self._unasked(ctx)
        left = ctx.remaining_s()
        answer = ctx.ask(self._question(), left if self.for_ is None else min(left, float(self.for_)))
        if answer:
            return _answered(answer, f"answered `{answer}`")
        if answer is None and self.default is None and self.for_ is None:
            return StepResult(verdict="undecided", reason="nobody answered within the time box")
        what = f"the default, `{self.default}`" if self.default is not None else "gone on"
        return _answered(self.default or "", f"no answer in time: {what}" if answer is None else f"Enter: {what}")

    def _question(self) -> str:
        default = f" [{self.default}]" if self.default is not None else "" if self.prompt else f" ({GO_ON})"
        return f"{self.prompt}{default} "

    def _unasked(self, ctx: StepContext) -> StepResult:
        if not self.prompt and self.for_ is not None:
            if ctx.clock.wait(ctx.cancel.event, min(ctx.remaining_s(), float(self.for_))):
                raise Cancelled("interrupted while waiting")
            return _answered(self.default or "", f"waited {self.for_}")
        if self.default is None:
            return StepResult(verdict="refused", reason="there is no terminal to ask at: give `default:`, or run it on one")
        return _answered(self.default, f"no terminal to ask at: the default, `{self.default}`")


def _answered(answer: str, reason: str) -> StepResult:
    return StepResult(verdict="passed", fields={"answer": answer}, reason=reason)
