"""Broken YAML made readable, so that what stands around a mistake can be checked too. What is made here is read, never run.

Each mend is the smallest change of one line that lets the parser go on; places in the changed text are told in those of the file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from runbook.lang.document import LINE_BREAK
from runbook.model.diagnostic import Diagnostic, Span

MOST = 10
"""Mends of one file; more mistakes of this sort are rarely all real."""
_EXACT = frozenset(
    {
        *("unquoted-expression", "reserved-character", "unquoted-colon", "bad-escape", "text-after-value", "unindented-text"),
        *("indented-key", "missing-blank", "missing-dash-blank", "key-without-colon"),
    }
)
"""What was meant is certain, so the line is checked like any other."""
_WORD = re.compile(r"[^\s:{\[=]+( *=)?")
ENTRY = re.compile(r"\s*(?:- |(?:- )?[A-Za-z_][\w-]*:(?:\s|$))")
"""A line that is a key or an item, as far as one line can tell."""
VALUE = re.compile(r"\s*(?:- +)*(?:[^\s'\"\[{#][^:#]*:\s+)?")
"""What stands before a line's value."""
_CLOSERS = re.compile(r"[\]}\s]*$")


class Edit(NamedTuple):
    """`removed` characters at a place (from 0) gave way to `added`."""

    line: int
    column: int
    removed: int
    added: str


class Mended:
    """A text with its mends so far."""

    def __init__(self, text: str) -> None:
        self.lines = LINE_BREAK.split(text)
        self.breaks = [*LINE_BREAK.findall(text), ""]
        self.edits: list[Edit] = []
        self.guessed: set[int] = set()
        """Numbers of lines, from 1, whose meaning was guessed: what is wrong with them otherwise is not known."""

    @property
    def text(self) -> str:
        return "".join(line + end for line, end in zip(self.lines, self.breaks, strict=True))

    def mend(self, problem: Diagnostic) -> bool:
        """Repair what the syntax error `problem`, with its place in this text, complains of; False when nothing is known to help."""
        rule, span = _RULES.get(problem.code), problem.span
        if rule is None or span is None or span.line > len(self.lines) or len(self.edits) >= MOST:
            return False
        edits = rule(self.lines, span)
        for edit in sorted(edits, reverse=True):
            line = self.lines[edit.line]
            self.lines[edit.line] = line[: edit.column] + edit.added + line[edit.column + edit.removed :]
            self.edits.append(edit)
            if problem.code not in _EXACT:
                self.guessed.add(edit.line + 1)
        return bool(edits)

    def is_guess(self, problem: Diagnostic) -> bool:
        """Whether a problem stands on a line whose meaning was guessed."""
        return problem.span is not None and problem.span.line in self.guessed

    def original(self, span: Span) -> Span:
        """The place in the file as it is."""
        start, end = (self._back(span.line - 1, span.column - 1 + extra) for extra in (0, span.length))
        return Span(span.file, span.line, start + 1, max(0, end - start))

    def _back(self, line: int, column: int) -> int:
        for edit in reversed(self.edits):
            if edit.line != line or column < edit.column:
                continue
            column = max(edit.column, column - len(edit.added) + edit.removed)
        return column


def _quote(line: int, text: str, start: int, end: int) -> list[Edit]:
    """Single quotes around a part of a line."""
    inner = [Edit(line, start + at.start(), 0, "'") for at in re.finditer("'", text[start:end])]
    return [Edit(line, start, 0, "'"), *inner, Edit(line, end, 0, "'")] if end > start else []


def _expression(lines: list[str], span: Span) -> list[Edit]:
    text, start = lines[span.line - 1], span.column - 1
    end = text.find("}}", start)
    return _quote(span.line - 1, text, start, end + 2) if end > 0 else []


def _value(lines: list[str], span: Span) -> list[Edit]:
    """Text that cannot stand without quotes: to its end, which inside brackets is a comma or a bracket."""
    text, start = lines[span.line - 1], span.column - 1
    return _quote(span.line - 1, text, start, start + len(value_at(text, start)))


def value_at(text: str, start: int) -> str:
    """The plain value that begins at `start` of a line: up to a comment, inside brackets up to a comma or a bracket."""
    found = re.match(r"[^,\[\]{}#]*" if in_brackets(text, start) else r".*?(?=\s#|$)", text[start:])
    return (found[0] if found else "").rstrip()


def in_brackets(text: str, column: int) -> bool:
    """Whether a bracket of this line is open at a column."""
    before = re.sub(r"'[^']*'|\"[^\"]*\"", "", text[:column])
    return sum(map(before.count, "[{")) > sum(map(before.count, "]}"))


def _tab(lines: list[str], span: Span) -> list[Edit]:
    """As deep as the line below; at the end of a block as the one above."""
    text = lines[span.line - 1]
    blanks = len(text) - len(text.lstrip())
    below = next((line for line in lines[span.line :] if line.strip()), "")
    above = next((line for line in reversed(lines[: span.line - 1]) if line.strip()), "")
    beside = below if "\t" not in _blanks(below) and len(_blanks(below)) > 0 and not below.lstrip().startswith("- ") else above
    deeper = 2 if beside is above and above.rstrip().endswith(":") else 0
    return [Edit(span.line - 1, 0, blanks, " " * (content_column(beside) + deeper))] if blanks else []


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def content_column(line: str) -> int:
    """Where a line's key or value begins, from 0: behind its blanks and dashes."""
    found = re.match(r"\s*(?:- +)*", line)
    return found.end() if found else 0


def _close_quote(lines: list[str], span: Span) -> list[Edit]:
    text, start = lines[span.line - 1], span.column - 1
    closers = _CLOSERS.search(text)
    end = closers.start() if closers and in_brackets(text, start) else len(text.rstrip())
    return [Edit(span.line - 1, end, 0, text[start])] if text[start : start + 1] in ("'", '"') else []


def _colon(lines: list[str], span: Span) -> list[Edit]:
    word = _WORD.match(lines[span.line - 1], span.column - 1)
    if word is None:
        return []
    return [Edit(span.line - 1, word.start(1) if word[1] else word.end(), len(word[1] or ""), ": ")]


def _blank(lines: list[str], span: Span) -> list[Edit]:
    at = lines[span.line - 1].find(":", span.column - 1)
    return [Edit(span.line - 1, at + 1, 0, " ")] if at > 0 else []


def _dash(lines: list[str], span: Span) -> list[Edit]:
    return [Edit(span.line - 1, span.column, 0, " ")]


def _deeper_text(lines: list[str], span: Span) -> list[Edit]:
    """Text that stands no deeper than its key, up to the next key or item."""
    edits = [Edit(span.line - 1, 0, 0, "  ")]
    for number in range(span.line, len(lines)):
        if lines[number].strip() and (len(_blanks(lines[number])) < span.column - 1 or ENTRY.match(lines[number])):
            break
        edits.append(Edit(number, 0, 0, "  "))
    return edits


def _left(lines: list[str], span: Span) -> list[Edit]:
    return [Edit(span.line - 1, 0, span.column - 1, "")]


def _column(lines: list[str], span: Span) -> list[Edit]:
    """In line with the key above it."""
    text = lines[span.line - 1]
    above = next((line for line in reversed(lines[: span.line - 1]) if line.strip() and not line.lstrip().startswith("#")), "")
    wanted, has = content_column(above), len(_blanks(text))
    if text.lstrip().startswith("- ") or wanted == has:
        return []
    return [Edit(span.line - 1, 0, has, " " * wanted)]


def _bracket(lines: list[str], span: Span) -> list[Edit]:
    text, start = lines[span.line - 1], span.column - 1
    closing = {"[": "]", "{": "}"}.get(text[start : start + 1])
    return [Edit(span.line - 1, _closes(text, start), 0, closing)] if closing else []


def _closes(text: str, start: int) -> int:
    """Where the bracket at `start` ends at the latest: before the end of one that is open around it, or at the end of the line."""
    open_: list[str] = []
    for found in re.finditer(r"'[^']*'|\"[^\"]*\"|[\[\]{}]", text[start:]):
        if found[0] in ("[", "{"):
            open_.append({"[": "]", "{": "}"}[found[0]])
        elif found[0] in ("]", "}"):
            if len(open_) == 1 and found[0] != open_[0]:
                return start + found.start()
            open_ = open_[:-1]
    return len(text.rstrip())


def _escape(lines: list[str], span: Span) -> list[Edit]:
    at = lines[span.line - 1].rfind("\\", 0, span.column)
    return [Edit(span.line - 1, at, 0, "\\")] if at >= 0 else []


def _whole(lines: list[str], span: Span) -> list[Edit]:
    text = lines[span.line - 1]
    found = VALUE.match(text)
    return _quote(span.line - 1, text, found.end() if found else 0, len(text.rstrip()))


_RULES = {
    "unquoted-expression": _expression,
    "reserved-character": _value,
    "unquoted-colon": _whole,
    "text-after-value": _whole,
    "text-after-braces": _whole,
    "tab-indentation": _tab,
    "unclosed-quote": _close_quote,
    "missing-colon": _colon,
    "key-without-colon": _colon,
    "missing-blank": _blank,
    "missing-dash-blank": _dash,
    "unindented-text": _deeper_text,
    "indented-key": _left,
    "bad-indentation": _column,
    "unclosed-bracket": _bracket,
    "bad-escape": _escape,
}
