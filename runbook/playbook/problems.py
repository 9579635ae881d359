"""The mistakes found in one document, each with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from runbook.lang.yaml_loader import Document
from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.playbook.shape import Misfit

Path = tuple[Any, ...]
Where = Union[Span, None, Callable[[], Union[Span, None]]]


class Problems:
    """Collects diagnostics of `document`; paths are those of its data."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Diagnostic] = []

    def add(self, code: str, summary: str, path: Path, hint: str | None = None, *, at_key: bool = False) -> None:
        """A mistake in a value, or in a key."""
        self.at(code, summary, self.document.key_span(path) if at_key else self.document.span(path), hint)

    def at(self, code: str, summary: str, place: Where, hint: str | None = None) -> None:
        """A mistake at a place, or at one that is worked out only now; None for the command line."""
        span = place() if callable(place) else place
        if self.document.is_guessed(span):
            return  # of broken syntax, which is reported
        if not summary.isprintable():  # what somebody wrote may hold line breaks; a summary is one line
            summary = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in summary)
        self.found.append(Diagnostic(code=code, summary=summary, span=span, hint=hint))

    def add_misfits(self, misfits: list[Misfit], base: Path = ()) -> None:
        """What a walk over types found, below `base`."""
        for misfit in misfits:
            self.add(misfit.code, misfit.summary, (*base, *misfit.path), misfit.hint, at_key=misfit.at == "key")

    def forgive(self, words: list[Path], base: Path = ()) -> None:
        """`off` where it is one of the words that may stand there is no forgotten boolean."""
        meant = {str(self.document.span((*base, *path))) for path in words}
        self.found[:] = [one for one in self.found if one.code != "text-not-boolean" or str(one.span) not in meant]

    def sorted(self) -> list[Diagnostic]:
        """In file order, each once. Of two that say the same of one value, the one that knows more stays."""
        wrong = {str(one.span) for one in self.found if one.severity is Severity.ERROR and one.code != "type"}
        mistyped = {str(one.span) for one in self.found if one.code == "type"}
        kept = [one for one in dict.fromkeys(self.found) if not _said_better(one, wrong, mistyped)]
        return sorted(kept, key=lambda one: (one.span.file, one.span.line, one.span.column) if one.span else ("", 0, 0))


def has_errors(diagnostics: list[Diagnostic]) -> bool:
    """Is any of them more than a warning?"""
    return any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)


def _said_better(one: Diagnostic, wrong: set[str], mistyped: set[str]) -> bool:
    """A warning about a value that is an error too; a wrong type where the text itself was refused (`012`)."""
    span = str(one.span)
    if one.severity is Severity.WARNING:
        return span in wrong or span in mistyped
    return one.code == "type" and one.span is not None and span in wrong
