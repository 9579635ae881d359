"""Diagnostics for people (place, sentence, code frame, hint) and for programs (one JSON object). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runbook.model.diagnostic import Diagnostic, Severity

TAB = 4
WIDEST = 160
"""Longer source lines are cut around the caret."""
LONGEST_JSON_TEXT = 2048


def as_text(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    """All diagnostics, a blank line between two. `sources` maps a file name to its text, for the code frames."""
    return "\n".join(one_text(diagnostic, sources) for diagnostic in diagnostics)


def one_text(diagnostic: Diagnostic, sources: Mapping[str, str]) -> str:
    """`file:line:col: error[code]: summary`, up to three source lines with a caret, a hint. Ends in a line break."""
    span = diagnostic.span
    where = f"{span}: " if span else ""
    lines = [f"{where}{diagnostic.severity.value}[{diagnostic.code}]: {visible(diagnostic.summary)}"]
    if span and span.file in sources:
        lines += frame(sources[span.file], span.line, span.column, span.length)
    if diagnostic.hint:
        lines.append(f"  hint: {visible(diagnostic.hint)}")
    return "\n".join(lines) + "\n"


def frame(text: str, line: int, column: int, length: int) -> list[str]:
    """The line with its neighbours and a caret under the span. Empty when the text has no such line."""
    source = text.splitlines()
    if not 1 <= line <= len(source):
        return []
    width = len(str(min(line + 1, len(source))))
    shown: list[str] = []
    for number in range(max(1, line - 1), min(len(source), line + 1) + 1):
        content = source[number - 1]
        cut = max(0, column - 1 - WIDEST // 2) if number == line and len(content) > WIDEST else 0
        shown.append(f" {number:>{width}} | {_expanded(content[cut : cut + WIDEST])}".rstrip())
        if number == line:
            before = len(_expanded(content[cut : column - 1]))
            marked = max(1, min(length, len(content) - column + 1, WIDEST))
            carets = len(_expanded(content[column - 1 : column - 1 + marked])) if column <= len(content) else 1
            shown.append(f" {'':>{width}} | {' ' * before}{'^' * max(1, carets)}")
    return shown


def _expanded(text: str) -> str:
    return visible(text.replace("\t", " " * TAB))


def visible(text: str) -> str:
    """Control characters as escapes: a playbook must not be able to steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def summary_line(diagnostics: Sequence[Diagnostic], files: int) -> str:
    """`2 errors, 1 warning in 3 files`."""
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
    warnings = len(diagnostics) - errors
    counts = [_count(errors, "error")] if errors or not warnings else []
    counts += [_count(warnings, "warning")] if warnings else []
    return f"{', '.join(counts)} in {_count(files, 'file')}"


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"


def as_object(diagnostics: Iterable[Diagnostic], verdict: str | None = "invalid") -> dict[str, Any]:
    """`{"verdict": "invalid", "diagnostics": [{code, severity, file, line, col, summary, hint}]}`."""
    return {"verdict": verdict, "diagnostics": [_one_object(diagnostic) for diagnostic in diagnostics]}


def _one_object(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "file": span.file if span else None,
        "line": span.line if span else None,
        "col": span.column if span else None,
        "summary": diagnostic.summary[:LONGEST_JSON_TEXT],
        "hint": diagnostic.hint[:LONGEST_JSON_TEXT] if diagnostic.hint else None,
    }
