"""What the types cannot say of a profile: keys that contradict each other, patterns that say everything or nothing."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from runbook.lang.regex import compiled
from runbook.model.verdict import CRASHED_KINDS
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems

MARKS = ("mark", "begin", "end", "progress")
NOTHING = "(?!)"
METRIC_SOURCES = frozenset({"response", "counters", "log"})


def contradictions(problems: Problems, own: dict[str, Any], whole: dict[str, Any]) -> None:
    """Look at what a file says (`own`) in the light of all that then holds (`whole`, with what it extends).

    Both are sound: what does not fit its type is left out, an item of a list is null in its place.
    """
    for check in (_name, _patterns, _groups, _metrics, _phases, _health, _kinds, _marks):
        for code, path, summary, hint in check(own, whole, problems.document.file):
            problems.add(code, summary, path, hint)


def sound(data: dict[str, Any], wrong: Iterable[Path], broken: Iterable[Path]) -> dict[str, Any]:
    """A copy without the values at the wrong paths, and with a pattern that finds nothing for each broken one of a phase."""
    copied = copy.deepcopy(data)
    for path, value in (*((path, None) for path in wrong), *((path, NOTHING if path[0] == "phases" else None) for path in broken)):
        parent: Any = copied
        for part in path[:-1]:
            parent = parent.get(part) if isinstance(parent, dict) else parent[part] if isinstance(parent, list) else None
        if path and isinstance(parent, dict) and value is None:
            parent.pop(path[-1], None)
        elif path and isinstance(parent, (dict, list)):
            parent[path[-1]] = value
    return copied


Found = Iterator[tuple[str, Path, str, str | None]]


def _name(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    """Profiles are found by their file's name."""
    path, name = PurePath(file), own.get("profile")
    if path.suffix in (".yaml", ".yml") and name is not None and name != path.stem:
        hint = f"write `profile: {path.stem}`, or rename the file to `{name}.yaml`"
        yield "profile-name", ("profile",), f"this file is found as `{path.stem}` and says that it is `{name}`", hint


def _patterns(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    """A pattern that is found in the empty text is found in every line."""
    rows: list[tuple[Path, str | None]] = [(("ready",), own.get("ready"))]
    rows += [(("noise", index), text) for index, text in enumerate(own.get("noise", []))]
    for part in ("cause", "effect", "degraded"):
        rows += [((part, kind), text) for kind, text in own.get(part, {}).items()]
    for index, phase in _own_phases(own):
        rows += [(("phases", index, key), phase.get(key)) for key in MARKS]
    for path, text in rows:
        if text and re.search(text, ""):
            yield "matches-all", path, f"`{text}` is found in every line", "name a word that only this line has"


def _groups(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    """Groups that are read by name."""
    for path, text, group in (
        (("line",), own.get("line"), "msg"),
        (("processes", "rank_title"), own.get("processes", {}).get("rank_title"), "rank"),
    ):
        if text and group not in re.compile(text).groupindex:
            yield "group", path, f"the pattern has no group `{group}`, by which it is read", f"write for example `(?P<{group}>…)`"


def _metrics(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    for name, sources in own.get("metrics", {}).items():
        path, log = ("metrics", name), sources.get("log") if isinstance(sources, dict) else None
        if not isinstance(sources, dict) or not set(sources) & METRIC_SOURCES:
            yield "metric", path, f"`{name}` has no source", f"give it one of {', '.join(sorted(METRIC_SOURCES))}"
        for key in set(sources) - METRIC_SOURCES - {"missing"} if isinstance(sources, dict) else ():
            yield "unknown-key", (*path, key), f"unknown key `{key}` in `{name}`", suggestion(str(key), {*METRIC_SOURCES, "missing"})
        if log is None:
            continue
        pattern, fault = compiled(str(log))
        if pattern is None:
            yield "regex", (*path, "log"), fault, None
        elif "value" not in pattern.groupindex:
            yield "group", (*path, "log"), "the pattern has no group `value`, by which it is read", r"write for example `(?P<value>\d+)`"


def _phases(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    seen: set[str] = set()
    for index, phase in _own_phases(own):
        path, name = ("phases", index), phase["id"]
        full = next((one for _, one in _own_phases(whole) if one["id"] == name), phase)
        if name in seen:
            yield "duplicate-id", (*path, "id"), f"a phase is called `{name}` already", "give each its own id"
        seen.add(name)
        if not any(full.get(key) for key in ("mark", "begin", "progress")):
            yield "no-mark", path, f"nothing opens the phase `{name}`", "give it `mark:`, or `begin:` and `end:`, or `progress:`"
        elif full.get("end") and not full.get("begin"):
            yield "no-begin", (*path, "end"), f"the phase `{name}` has an end and no begin", "add `begin:`"
        elif full.get("mark") and full.get("begin"):
            yield "two-marks", (*path, "mark"), f"the phase `{name}` has a mark and a begin", "keep `begin:` where it has an end"


def _health(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    health, full = own.get("health", {}), whole.get("health", {})
    if health.get("path") and not health["path"].startswith("/"):
        yield "path", ("health", "path"), f"`{health['path']}` is no path", "begin it with `/`; empty: the server has none"
    for key in ("ready_status", "starting_status", "unhealthy_status"):
        for index, status in enumerate(health.get(key, [])):
            if status is not None and not 100 <= status <= 599:
                yield "range", ("health", key, index), f"`{status}` is no HTTP status", "it is a number from 100 to 599"
    body = full.get("body", "unknown")
    if health.get("json") is not None and body != "json":
        yield "body", ("health", "json"), f"`json` tells what the body holds, and `body` is `{body}`", "write `body: json`"


def _kinds(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    for kind in own.get("cause", {}):
        if kind not in CRASHED_KINDS:
            yield "unknown-kind", ("cause", kind), f"no crash is of the kind `{kind}`", suggestion(kind, CRASHED_KINDS)


def _marks(own: dict[str, Any], whole: dict[str, Any], file: str) -> Found:
    """A line cannot be the ready mark and be said to come too early."""
    ready = whole.get("ready")
    for index, one in enumerate(own.get("not_ready", [])):
        if one and ready and re.search(ready, one.get("line", "")):
            yield "ready-mark", ("not_ready", index), f"`ready` is found in this line as well: `{ready}`", "make `ready` narrower"
    for one in whole.get("not_ready", []) if own.get("ready") and not own.get("not_ready") else ():
        if one and re.search(own["ready"], one.get("line", "")):
            yield "ready-mark", ("ready",), f"this is found in `{one['line']}`, which comes too early: {one['why']}", "make it narrower"


def _own_phases(own: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return [(index, phase) for index, phase in enumerate(own.get("phases", [])) if phase and "id" in phase]
