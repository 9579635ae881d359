"""How patient a wait is: the keys that all waits on a server share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from runbook.model.fields import url_fault
from runbook.model.units import Duration, TimeBox, UnitError

AUTO = "auto"

StallAfter = Annotated[str, Meta(description="time without progress before a hang is possible, or `auto`: the budget of the phase")]
OnSuspect = Annotated[
    Literal["continue", "collect", "fail"],
    Meta(
        description="what a suspicion of a hang does: `continue` looks no closer, `collect` takes stacks and asks the kernel, "
        "`fail` does that and ends the wait, as undecided where no rule is certain"
    ),
]


def seconds_or_auto(text: str) -> float | None:
    """The seconds of a duration; None for `auto`."""
    return None if text == AUTO else float(Duration.parse(text))


def bad_url(step: Any) -> list[tuple[str, str, str]]:
    """The problem of a `url` that nobody can ask; none for an expression."""
    fault = url_fault(step.url) if step.url is not None and "${{" not in step.url else None
    return [("url", *fault)] if fault else []


def bad_duration(step: Any, name: str) -> list[tuple[str, str, str]]:
    """The problem of a field that is neither `auto` nor a duration of some length; none for an expression."""
    text = getattr(step, name)
    if text == AUTO or "${{" in text:
        return []
    try:
        TimeBox.parse(text)
    except UnitError as problem:
        return [(name, str(problem), problem.hint or "write `auto` or for example `2s`")]
    return []
