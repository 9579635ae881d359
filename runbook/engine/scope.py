"""The names that expressions see: vars, steps, secrets, item, index, host, hosts, run. Plain data with Unknown leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from runbook.engine.state import RunState, StepRecord
from runbook.lang.expressions import Unknown
from runbook.model.event import StepEnded

ALWAYS_KNOWN = ("status", "verdict", "seconds", "diagnosis", "reason", "host")


def steps_scope(state: RunState, declared: Mapping[str, Mapping[str, str]], prefix: str = "") -> dict[str, Any]:
    """`steps`: for each declared step id (with its result fields) what it gave, or unknowns that say why not.

    `prefix` is what the ids of the file begin with in the run.
    """
    return {step: _step(state.steps.get(prefix + step), fields, prefix + step) for step, fields in declared.items()}


def _step(record: StepRecord | None, fields: Mapping[str, str], step: str) -> Any:
    if record is None or not record.ends:
        why = Unknown(f"step `{step}` did not run")
        return {
            **dict.fromkeys(fields, why),
            "status": "skipped",
            "verdict": None,
            "seconds": 0.0,
            "diagnosis": why,
            "reason": why,
            "hosts": {},
        }
    by_target = {target: [end for end in record.ends if end.host == target] for target in record.targets}
    hosts = {target: _target(ends, fields) for target, ends in by_target.items() if ends}
    if len(hosts) == 1:
        (only,) = hosts.values()
        return {**only, "hosts": hosts}
    why = Unknown(f"step `{step}` ran on {len(hosts)} hosts: write `steps.{step}.hosts[NAME]`")
    return {**dict.fromkeys([*fields, *ALWAYS_KNOWN], why), "hosts": hosts}


def _target(ends: list[StepEnded], fields: Mapping[str, str]) -> dict[str, Any]:
    last = ends[-1]
    items = [_one(end, fields) for end in {end.item: end for end in ends if end.item is not None}.values()]  # of each its last attempt
    result = _one(last, fields)
    result["attempts"] = [_one(end, fields) for end in ends if end.item == last.item]
    if items:
        result["items"] = items
    return result


def _one(end: StepEnded, fields: Mapping[str, str]) -> dict[str, Any]:
    diagnosis = msgspec.to_builtins(end.diagnosis) if end.diagnosis else None
    known = {
        "status": end.status,
        "verdict": end.verdict,
        "seconds": end.seconds,
        "host": end.host,
        "reason": end.reason,
        "diagnosis": diagnosis,
    }
    if end.status in ("unknown", "skipped"):
        why = Unknown(f"step `{end.step}` ended {end.verdict or end.status}" + (f": {end.reason}" if end.reason else ""))
        return {**dict.fromkeys(fields, why), **known}
    missing = {name: Unknown(f"step `{end.step}` gave no `{name}`") for name in fields if name not in end.result}
    return {**missing, **revive(end.result), **known}


UNKNOWN_KEY = "~unknown"
"""How an unknown leaf stands in the journal: {"~unknown": reason}."""


def revive(value: Any) -> Any:
    """Journal data to scope data: unknown leaves become Unknown again."""
    if isinstance(value, dict):
        if set(value) == {UNKNOWN_KEY}:
            return Unknown(value[UNKNOWN_KEY])
        return {key: revive(item) for key, item in value.items()}
    if isinstance(value, list):
        return [revive(item) for item in value]
    return value


def plain(value: Any) -> Any:
    """Scope data to journal data. Bytes become text; anything else that JSON has no form for is shown as text."""
    if isinstance(value, Unknown):
        return {UNKNOWN_KEY: value.reason}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.to_builtins(value))
    return str(value)
