"""An engine's own numbers from what a request left behind: its answers, counters before and after, log lines of its window.

The sources stand in the profile under `metrics`, per metric:

    response: [path, {over: path, under: path}]      fields of the JSON answer, tried in this order
    counters: {over: name, under: name, plus: 0}      differences of `/metrics` counters over the window
    log: regex with the group `value`                 lines of the window
    missing: why there may be no value
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SERIES = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([-+0-9.eE]+|NaN|[+-]Inf)")


class Reading(NamedTuple):
    """A metric's value: the mean over `n` readings, and where they came from."""

    value: float
    source: str
    n: int


def from_answers(sources: Mapping[str, Any], answers: Sequence[Any]) -> Reading | None:
    """The mean over the answers that carry the number."""
    for place in sources.get("response") or ():
        values = [value for one in answers if (value := _field(one, place)) is not None]
        if values:
            return Reading(sum(values) / len(values), f"response {_named(place)}", len(values))
    return None


def from_counters(sources: Mapping[str, Any], before: Mapping[str, float], after: Mapping[str, float]) -> Reading | None:
    """The quotient of two counters' growth. Foreign requests in the window count too: a server has one set of counters."""
    wanted = sources.get("counters")
    if not wanted or any(wanted[part] not in before or wanted[part] not in after for part in ("over", "under")):
        return None
    over = after[wanted["over"]] - before[wanted["over"]]
    under = after[wanted["under"]] - before[wanted["under"]]
    if under <= 0 or over < 0:
        return None
    return Reading(over / under + float(wanted.get("plus", 0)), f"counters {wanted['over']} / {wanted['under']}", int(under))


def from_log(values: Sequence[str | None]) -> Reading | None:
    """The mean over the values that the log lines of the window gave."""
    numbers = [number for text in values if text is not None and (number := _number(text)) is not None]
    return Reading(sum(numbers) / len(numbers), "log", len(numbers)) if numbers else None


def counters(text: str) -> dict[str, float]:
    """Counters by name from the Prometheus text format; series of one name are added up."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        series = SERIES.match(line)
        number = _number(series[2]) if series else None
        if series and number is not None:
            found[series[1]] = found.get(series[1], 0.0) + number
    return found


def _named(place: Any) -> str:
    return f"{place['over']} / {place['under']}" if isinstance(place, Mapping) else str(place)


def _field(answer: Any, place: Any) -> float | None:
    if isinstance(place, Mapping):
        over, under = _field(answer, place["over"]), _field(answer, place["under"])
        return over / under if over is not None and under else None
    for key in str(place).split("."):
        if not isinstance(answer, Mapping) or key not in answer:
            return None
        answer = answer[key]
    return float(answer) if isinstance(answer, (int, float)) and not isinstance(answer, bool) else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
