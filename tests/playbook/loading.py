"""Loading a playbook from text with the small table; what a test asks of the answer."""

from __future__ import annotations

from typing import Any

from runbook.model.diagnostic import Diagnostic
from runbook.model.playbook import Playbook
from runbook.playbook.build import load_playbook
from tests.playbook.table import PROFILES, TABLE

HEAD = "runbook: 1\nhosts: {box: local}\n"


def load(text: str, **options: Any) -> tuple[Playbook | None, list[Diagnostic]]:
    return load_playbook(text.encode(), "book.yaml", table=TABLE, profiles=PROFILES, **options)


def problems(steps: str, head: str = HEAD, **options: Any) -> list[Diagnostic]:
    """The diagnostics of a playbook with these lines below `steps:`."""
    return load(f"{head}steps:\n{steps}", **options)[1]


def the_problem(steps: str, head: str = HEAD, **options: Any) -> Diagnostic:
    """The one diagnostic of a playbook that must have exactly one."""
    found = problems(steps, head, **options)
    assert len(found) == 1, [f"{one.code}: {one.summary}" for one in found]
    return found[0]


def valid(steps: str, head: str = HEAD, **options: Any) -> Playbook:
    """The playbook, which must have no diagnostic."""
    playbook, found = load(f"{head}steps:\n{steps}", **options)
    assert playbook is not None and not found, [f"{one.span}: {one.code}: {one.summary}" for one in found]
    return playbook


def place(diagnostic: Diagnostic) -> tuple[int, int]:
    assert diagnostic.span is not None
    return diagnostic.span.line, diagnostic.span.column
