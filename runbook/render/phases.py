"""How long each phase of a server, and of each of its ranks, lasted."""

from __future__ import annotations

from typing import NamedTuple

from runbook.model.event import PhaseReached
from runbook.render.story import StepStory


class PhaseSpan(NamedTuple):
    """A phase from its event until `end`, unix seconds; `open` when the step ended in it."""

    phase: PhaseReached
    end: float
    open: bool

    @property
    def lane(self) -> str:
        """Who was in it: the server as a whole, or one of its ranks."""
        rank = self.phase.label or ("" if self.phase.rank is None else f"rank {self.phase.rank}")
        return " ".join(part for part in (self.phase.server or self.phase.step, rank) if part)


def phase_spans(step: StepStory, last_t: float) -> list[PhaseSpan]:
    """Each phase lasts until the next event of the same rank, or to the end of its step, or of the journal."""
    by_lane: dict[tuple[str, str, int | None], list[PhaseReached]] = {}
    for phase in step.phases:
        by_lane.setdefault((phase.server, phase.label, phase.rank), []).append(phase)
    until = step.end.t if step.end else last_t
    spans = []
    for found in by_lane.values():
        for phase, following in zip(found, [*found[1:], None], strict=True):
            if not phase.ended:
                spans.append(PhaseSpan(phase, max(phase.t, following.t if following else until), following is None))
    return sorted(spans, key=lambda span: span.phase.t)
