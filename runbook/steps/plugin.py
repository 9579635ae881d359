"""What a package needs that brings step types of its own: `from runbook.steps.plugin import PluginStep, StepContext, StepResult`."""

from __future__ import annotations

from runbook.model.fields import Expression, LaunchRef, PatchRef, ProfileName, Regex, ShellText, StepRef
from runbook.model.units import Duration, Size
from runbook.steps.base import Step, StepContext, StepResult


class PluginStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a step type that does its work in `act`, and changes nothing in check mode unless it says how to look."""

    def act(self, ctx: StepContext) -> StepResult:
        """Do it. Raises HostError for the host; the engine turns that into a verdict."""
        raise NotImplementedError

    def check(self, ctx: StepContext) -> StepResult:
        """With `--check`: look, change nothing, say what would be done. Results that it does not give are unknown to later steps."""
        return StepResult(verdict="passed", reason="would " + ("; ".join(self.plan()) or f"do `{self.TYPE}`"))

    def run(self, ctx: StepContext) -> StepResult:
        """What the engine calls."""
        return self.check(ctx) if ctx.check_mode else self.act(ctx)


__all__ = [
    "Duration",
    "Expression",
    "LaunchRef",
    "PatchRef",
    "PluginStep",
    "ProfileName",
    "Regex",
    "ShellText",
    "Size",
    "StepContext",
    "StepRef",
    "StepResult",
]
