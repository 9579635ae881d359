"""set: variables for the steps that follow."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from runbook.steps.base import Step, StepContext, StepResult


class Set(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set variables for the rest of the run. The mapping is free: its keys are the names."""

    TYPE: ClassVar[str] = "set"
    SHORTHAND: ClassVar[str | None] = "values"
    FREE: ClassVar[bool] = True
    NEEDS_HOST: ClassVar[bool] = False
    RESUME: ClassVar[str] = "recheck"
    RESULTS: ClassVar[dict[str, str]] = {"values": "what was set"}
    EXAMPLE: ClassVar[str] = "set: {threshold: 4, model: '${{ steps.up.server_info.model_path }}'}"

    values: Annotated[dict[str, Any], Meta(description="name to value")]

    def problems(self) -> list[tuple[str, str, str]]:
        """Names that an expression can say."""
        bad = [name for name in self.values if not name.isidentifier()]
        return [
            (f"values.{name}", f"`{name}` is not a variable name", "use letters, digits and `_`, not starting with a digit") for name in bad
        ]

    def plan(self) -> list[str]:
        """One line a name."""
        return [f"set vars.{name}" for name in self.values]

    def run(self, ctx: StepContext) -> StepResult:
        """The engine has evaluated the values; write them down."""
        if ctx.reentry is None or not ctx.reentry.vars_set:  # else they are set already; a second time could count on from there
            ctx.set_vars(dict(self.values))
        return StepResult(verdict="passed", fields={"values": dict(self.values)}, reason="set " + ", ".join(self.values))
