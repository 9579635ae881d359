"""What each case is judged: by its log alone, and by all its signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from runbook.diagnose.causes import causes
from runbook.diagnose.lines import log_lines, matcher
from runbook.model.verdict import CRASHED_KINDS, HUNG_KINDS, Diagnosis
from tests.cases import check_stories, dead_stories, hung_stories, slow_stories
from tests.cases.fixtures import SILENT_S, read
from tests.cases.telling import Told

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "data" / "cases.yaml").read_text(encoding="utf-8"))
STORIES = {**slow_stories.STORIES, **hung_stories.STORIES, **dead_stories.STORIES, **check_stories.STORIES}
NOT_BY_THE_JUDGE = {"C-38": "a server that is up and does less than it should is found by an assertion on its acceptance length"}
WRONG_KINDS = {
    "C-12": {"oom_host"},
    "C-27": {"oom_gpu"},
    "C-30": {"oom_host", "oom_gpu"},
    "C-11": {"oom_host"},
    "C-52": {"oom_host", "oom_gpu"},
}
"""What `must_not` says of crashes of another kind."""
MUST_SAY = {"C-39": "invalid literal for int", "C-45": "bus", "C-29": "CUDA error", "C-28": "(?i)rank|zombie|dead"}
"""Words without which the right verdict is only half of the answer."""


def allowed(case: dict[str, Any]) -> set[str]:
    """Verdicts that the case accepts."""
    return {case["verdict"], *case.get("also_ok", ())}


def by_log(case: dict[str, Any]) -> list[Diagnosis]:
    """By its excerpt alone: a second after the last line, and after ten minutes of silence."""
    return [read(case, silent_s).judged() for silent_s in (1.0, SILENT_S)]


def ends_fatally(told: Told) -> bool:
    """Whether a fatal line is the last that says anything."""
    rules = matcher(told.profile)
    lines = [timed.line for timed in log_lines(told.samples, rules)]
    first = causes(lines, rules).first
    return first is not None and not any(line.bar or line.begins or line.moves for line in lines[first.place + 1 :])


def by_signals(case: dict[str, Any]) -> Diagnosis:
    """By everything that could be seen."""
    return STORIES[case["id"]]().judged()


def partial(case: dict[str, Any]) -> str:
    """A signal of the case that has no place in a sample; empty when all have."""
    return NOT_BY_THE_JUDGE.get(case["id"]) or STORIES[case["id"]]().partial


def kind_of(case: dict[str, Any]) -> str | None:
    """The kind to compare: of grade A, and one of ours."""
    kinds = HUNG_KINDS if case["verdict"] == "hung" else CRASHED_KINDS if case["verdict"] == "crashed" else frozenset()
    return case["kind"] if case["grade"] == "A" and case["kind"] in kinds else None


def name(found: Diagnosis) -> str:
    """Verdict and kind."""
    return f"{found.verdict}/{found.kind}" if found.kind else found.verdict


def table() -> str:
    """One row a case: what it should be, what its log gives, what its signals give."""
    rows = [("case", "expected", "by its log alone", "by all signals", "")]
    for case in CASES:
        expected = "/".join([case["verdict"], case["kind"]]) + "".join(f" or {word}" for word in case.get("also_ok", ()))
        log = ", later ".join(dict.fromkeys(name(one) for one in by_log(case))) if "fixture" in case else "no log"
        found = by_signals(case) if case["id"] in STORIES else None
        seen = f"{name(found)} ({found.rule})" if found else "not by the judge"
        good = found is None or found.verdict in allowed(case) or (bool(partial(case)) and found.verdict == "undecided")
        rows.append((case["id"], expected, log, seen, "" if good else "MISSED"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
