"""Nested time boxes: the effective box of a step is the smallest rest of all boxes around it."""

from __future__ import annotations

from typing import NamedTuple

from runbook.model.clock import Clock


class Box(NamedTuple):
    """A deadline on the monotonic clock; `label` names who set it: step, block, playbook, cleanup."""

    deadline: float
    label: str

    def remaining_s(self, clock: Clock) -> float:
        """Seconds left; 0 when it is over."""
        return max(0.0, self.deadline - clock.monotonic())


NO_BOX = Box(float("inf"), "none")


def nested(clock: Clock, outer: Box, seconds: float | None, label: str) -> Box:
    """The box inside `outer`: its own when it ends first, else the outer one, whose label then says what limited it."""
    if seconds is None:
        return outer
    own = Box(clock.monotonic() + seconds, label)
    return own if own.deadline <= outer.deadline else outer
