"""A step type that reads a number from a file of the host."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from runbook.steps.plugin import Duration, PluginStep, StepContext, StepResult


class ReadSensor(PluginStep, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read a temperature from a file of the host."""

    TYPE: ClassVar[str] = "read_sensor"
    SHORTHAND: ClassVar[str | None] = "file"
    TIMEOUT: ClassVar[str] = "30s"
    RESULTS: ClassVar[dict[str, str]] = {"celsius": "the temperature"}
    EXAMPLE: ClassVar[str] = "read_sensor: {file: /sys/class/thermal/thermal_zone0/temp, settle: 1s}"

    file: Annotated[str, Meta(description="absolute path on the host; thousandths of a degree")]
    settle: Annotated[Duration, Meta(description="how long to wait first")] = Duration(0)

    def problems(self) -> list[tuple[str, str, str]]:
        """What the type cannot say."""
        return [] if self.file.startswith(("/", "${{")) else [("file", f"`{self.file}` is not an absolute path", "write it from `/` on")]

    def plan(self) -> list[str]:
        """One line."""
        return [f"read {self.file}"]

    def act(self, ctx: StepContext) -> StepResult:
        """Read it."""
        ctx.clock.wait(ctx.cancel.event, float(self.settle))
        text = ctx.host.read(self.file, 0, 100).data.decode().strip()
        if not text.lstrip("-").isdigit():
            return StepResult(verdict="failed", reason=f"{self.file} holds `{text}`, which is no number")
        return StepResult(verdict="passed", fields={"celsius": int(text) / 1000}, reason=f"{int(text) / 1000} °C")
