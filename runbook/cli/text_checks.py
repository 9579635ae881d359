"""Checks of a playbook that need more than its own package knows: trackers, and the shapes of secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.model.playbook import Playbook


def text_problems(playbook: Playbook, environ: Mapping[str, str] = os.environ) -> list[Diagnostic]:
    """Tickets of no known tracker (errors), secrets that stand in the text itself (warnings)."""
    return [*_tickets(playbook, environ), *_secrets(playbook)]


def _tickets(playbook: Playbook, environ: Mapping[str, str]) -> list[Diagnostic]:
    found = []
    for ticket in playbook.post:
        if ticket.startswith("env:"):
            continue
        from runbook.tickets import tracker_for
        from runbook.tickets.base import Misused

        try:
            tracker_for(ticket, environ)
        except Misused as mistake:
            found.append(Diagnostic(code="bad-ticket", span=playbook.spans.get("post"), summary=mistake.summary, hint=mistake.hint))
    return found


def _secrets(playbook: Playbook) -> list[Diagnostic]:
    return [found for file, text in {playbook.file: playbook.text, **playbook.files}.items() for found in _secrets_in(file, text)]


def _secrets_in(file: str, text: str) -> list[Diagnostic]:
    from runbook.engine.redaction.scan import find

    return [
        Diagnostic(
            code="literal-secret",
            severity=Severity.WARNING,
            span=_place(file, text, piece.start, piece.end),
            summary=f"this looks like a secret ({piece.kind}); it is masked in the journal, so `cancel` cannot use it",
            hint="put it into the environment, name the variable under `secrets:` and write `${{ secrets.NAME }}`",
        )
        for piece in find(text, sure_only=True)
    ]


def _place(file: str, text: str, start: int, end: int) -> Span:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    length = len(text[start:end].split("\n", 1)[0])
    return Span(file, line, column, length)
