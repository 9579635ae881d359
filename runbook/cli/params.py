"""Kinds of option values that several commands take."""

from __future__ import annotations

import click

from runbook.model.units import Duration, UnitError


class DurationParam(click.ParamType):
    """A time with its unit, as `45s` or `10m`; seconds inside."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter with what to write instead."""
        if isinstance(value, float):
            return value
        try:
            return float(Duration.parse(value))
        except UnitError as problem:
            self.fail(f"{problem}; {problem.hint}" if problem.hint else str(problem), param, ctx)


DURATION = DurationParam()
