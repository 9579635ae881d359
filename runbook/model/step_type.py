"""A step type that is known by name and cannot be had."""

from __future__ import annotations


class BrokenStepType(Exception):
    """It comes from an installed package, and that does not give a step type. `hint` says what to do."""

    def __init__(self, summary: str, hint: str) -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint
