"""How long a start takes: measured while a wait watches it, and said beside what earlier ones took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runbook.diagnose import baseline
from runbook.diagnose.phases import READY
from runbook.diagnose.view import View
from runbook.lang.expressions import Unknown
from runbook.model.sample import Absent, Blind
from runbook.model.units import format_duration
from runbook.model.usual import PhaseTime
from runbook.steps.base import Launched, StepContext

TIMELY_S = 15.0
"""A wait that began later than this after the launch did not see the first phases begin."""


class Starting:
    """One start of a server, or of none: then nothing is known and nothing is measured."""

    def __init__(self, ctx: StepContext, launched: Launched | None) -> None:
        self._ctx = ctx
        self._launched = launched
        self.usual = ctx.usual(launched) if launched is not None else None
        self._silences: dict[str, float] = {}
        began_s = ctx.clock.now() - launched.state.started + ctx.host.facts.clock_offset_s if launched is not None else 0.0
        self._is_timely = began_s < TIMELY_S

    def look(self, view: View) -> None:
        """Note the silence of the phase that it is in; none while nobody could look."""
        phase, quiet, last = view.course.current, view.quiet_s, view.last
        if phase is None or quiet is None or last is None or isinstance(last.link, Absent) or isinstance(last.processes, Blind):
            return
        lasted = min(quiet, view.now - baseline.entered(view))
        self._silences[phase] = max(self._silences.get(phase, 0.0), round(lasted, 3))

    def with_silences(self, phases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The table of phases, each with its longest time without progress; null where nobody watched."""
        return [{**row, "quiet": self._silences.get(row["name"])} for row in phases]

    def ready(self, after_s: Any, phases: Sequence[dict[str, Any]], checks: int) -> str:
        """Record that it is ready so long after its launch; for people, how that compares.

        Empty when it was not seen to become ready: the first of the checks was good already.
        """
        launched = self._launched
        if launched is None or launched.attached or isinstance(after_s, Unknown) or checks < 2:
            return ""
        rows = [
            PhaseTime(name=row["name"], seconds=row["seconds"], quiet_s=row["quiet"])
            for row in phases
            if self._is_timely and row["seconds"] and row["name"] != READY  # without a length: both its marks came in one look
        ]
        self._ctx.measured(launched, after_s, rows)
        compared = f", usually {baseline.spoken(self.usual.ready)}" if self.usual is not None else ""
        return f"; {format_duration(after_s)} after its launch{compared}"
