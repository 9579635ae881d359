"""Exact text replacements, each counted before it is made."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from runbook.model.diagnostic import Diagnostic, Span
from runbook.probes.spec import Edit


def edit(text: str, edits: Sequence[Edit], path: str) -> str | list[Diagnostic]:
    """The text after all replacements, each made on the result of the one before; line ends follow the file's."""
    problems = []
    for number, change in enumerate(edits):
        eol = "\r\n" if "\r\n" in text else "\n"
        find, to = (part.replace("\r\n", "\n").replace("\n", eol) for part in (change.find, change.with_))
        seen = text.count(find) if find else 0
        if seen != change.count:
            problems.append(_edit_problem(text, find, seen, change.count, number, path))
        text = text.replace(find, to) if find else text
    return problems or text


def edit_plain(data: bytes, edits: Sequence[Edit], path: str) -> tuple[bytes, str, str] | list[Diagnostic]:
    """(new bytes, text before, text after) of a file that is not Python; its bytes need not be valid text."""
    text = data.decode("utf-8", "surrogateescape")
    edited = edit(text, edits, path)
    return edited if isinstance(edited, list) else (edited.encode("utf-8", "surrogateescape"), text, edited)


def _edit_problem(text: str, find: str, seen: int, count: int, number: int, path: str) -> Diagnostic:
    if not find:
        return _problem("edit-empty", path, 1, f"replace {number + 1} looks for an empty text", "write the text that is to be replaced")
    lines = [text.count("\n", 0, position) + 1 for position in _positions(text, find)]
    if seen:
        return _problem(
            "not-unique",
            path,
            lines[0],
            f"`{find}` is there {seen} times, not {count}: lines {', '.join(map(str, lines[:10]))}",
            f"write `count: {seen}`, or more of the text",
        )
    rows = text.splitlines()
    near = difflib.get_close_matches(find.strip().splitlines()[0] if find.strip() else find, [row.strip() for row in rows], n=3, cutoff=0.5)
    listed = "; ".join(f"line {1 + [row.strip() for row in rows].index(row)}: `{row}`" for row in near)
    return _problem(
        "anchor-missing",
        path,
        1,
        f"`{find}` is not in the file" + (f"; nearest: {listed}" if listed else ""),
        "copy the text from the file",
    )


def _positions(text: str, find: str) -> list[int]:
    found, position = [], text.find(find)
    while position >= 0:
        found.append(position)
        position = text.find(find, position + len(find))
    return found


def _problem(code: str, path: str, line: int, summary: str, hint: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, line, 1), hint=hint)
