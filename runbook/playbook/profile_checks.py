"""What the types cannot say of a profile: keys that contradict each other, patterns that say everything or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from runbook.model.verdict import CRASHED_KINDS
from runbook.playbook.near import suggestion
from runbook.playbook.problems import Path, Problems


def contradictions(problems: Problems, data: dict[str, Any]) -> None:
    """Look at a whole profile, with what it extends; problems stand where the file at hand says something about it."""
    for check in (_name, _patterns, _groups, _phases, _health, _kinds, _marks):
        for code, path, summary, hint in check(data, problems.document.file):
            problems.add(code, summary, path, hint)


Found = Iterator[tuple[str, Path, str, str | None]]


def _name(data: dict[str, Any], file: str) -> Found:
    """Profiles are found by their file's name."""
    path = PurePath(file)
    if path.suffix in (".yaml", ".yml") and data["profile"] != path.stem:
        hint = f"write `profile: {path.stem}`, or rename the file to `{data['profile']}.yaml`"
        yield "profile-name", ("profile",), f"this file is found as `{path.stem}` and says that it is `{data['profile']}`", hint


def _patterns(data: dict[str, Any], file: str) -> Found:
    """A pattern that is found in the empty text is found in every line."""
    rows: list[tuple[Path, str]] = [(("ready",), data.get("ready", ""))]
    rows += [(("noise", index), text) for index, text in enumerate(data.get("noise", []))]
    for part in ("cause", "effect", "degraded"):
        rows += [((part, kind), text) for kind, text in data.get(part, {}).items()]
    for index, phase in enumerate(data.get("phases", [])):
        rows += [(("phases", index, key), phase[key]) for key in ("mark", "begin", "end", "progress") if phase.get(key)]
    for path, text in rows:
        if (text or path[0] != "ready") and re.search(text, ""):
            yield "matches-all", path, f"`{text}` is found in every line", "name a word that only this line has"


def _groups(data: dict[str, Any], file: str) -> Found:
    """Groups that are read by name."""
    for path, group in ((("line",), "msg"), (("processes", "rank_title"), "rank")):
        text = data.get(path[0], "") if len(path) == 1 else data.get(path[0], {}).get(path[1], "")
        if text and group not in re.compile(text).groupindex:
            yield "group", path, f"the pattern has no group `{group}`, by which it is read", f"write for example `(?P<{group}>…)`"
    for name, sources in data.get("metrics", {}).items():
        log = sources.get("log") if isinstance(sources, dict) else None
        if isinstance(log, str) and "value" not in _compiled_groups(log):
            yield (
                "group",
                ("metrics", name, "log"),
                "the pattern is not a regex with a group `value`",
                r"write for example `(?P<value>\d+)`",
            )


def _compiled_groups(text: str) -> frozenset[str]:
    try:
        return frozenset(re.compile(text).groupindex)
    except re.error:
        return frozenset()


def _phases(data: dict[str, Any], file: str) -> Found:
    seen: set[str] = set()
    for index, phase in enumerate(data.get("phases", [])):
        path = ("phases", index)
        if phase["id"] in seen:
            yield "duplicate-id", (*path, "id"), f"a phase is called `{phase['id']}` already", "give each its own id"
        seen.add(phase["id"])
        if not any(phase.get(key) for key in ("mark", "begin", "progress")):
            yield "no-mark", path, f"nothing opens the phase `{phase['id']}`", "give it `mark:`, or `begin:` and `end:`, or `progress:`"
        elif phase.get("end") and not phase.get("begin"):
            yield "no-begin", (*path, "end"), f"the phase `{phase['id']}` has an end and no begin", "add `begin:`"
        elif phase.get("mark") and phase.get("begin"):
            yield "two-marks", (*path, "mark"), f"the phase `{phase['id']}` has a mark and a begin", "keep `begin:` where it has an end"


def _health(data: dict[str, Any], file: str) -> Found:
    health = data.get("health", {})
    if health.get("path", "/") not in ("",) and not health.get("path", "/").startswith("/"):
        yield "path", ("health", "path"), f"`{health['path']}` is no path", "begin it with `/`; empty: the server has none"
    for key in ("ready_status", "starting_status", "unhealthy_status"):
        for index, status in enumerate(health.get(key, [])):
            if not 100 <= status <= 599:
                yield "range", ("health", key, index), f"`{status}` is no HTTP status", "it is a number from 100 to 599"
    if health.get("json") is not None and health.get("body", "unknown") != "json":
        yield (
            "body",
            ("health", "json"),
            f"`json` tells the body's content, and `body` is `{health.get('body', 'unknown')}`",
            "write `body: json`",
        )


def _kinds(data: dict[str, Any], file: str) -> Found:
    for kind in data.get("cause", {}):
        if kind not in CRASHED_KINDS:
            yield "unknown-kind", ("cause", kind), f"no crash is of the kind `{kind}`", suggestion(kind, CRASHED_KINDS)


def _marks(data: dict[str, Any], file: str) -> Found:
    for index, one in enumerate(data.get("not_ready", [])):
        if data.get("ready") and re.search(data["ready"], one["line"]):
            yield (
                "ready-mark",
                ("not_ready", index, "line"),
                "`ready` is found in this line, which is said to be no ready mark",
                "make `ready` narrower",
            )
