"""User mistakes as values: where, what, and what to type instead."""

from __future__ import annotations

import enum

import msgspec


class Severity(str, enum.Enum):
    """How bad it is: an error stops the playbook, a warning is shown."""

    ERROR = "error"
    WARNING = "warning"


class Span(msgspec.Struct, frozen=True):
    """A place in a text file. Line and column count from 1, in characters; length 0 means a point."""

    file: str
    line: int
    column: int
    length: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a text: a stable code, its place, one sentence, and a hint that says what to type."""

    code: str
    summary: str
    span: Span | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR
