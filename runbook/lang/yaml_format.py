"""YAML text in one form: two blanks a level, list items two further in than their key, one blank line at most, nothing behind a line.

Only white space and the order of entries change. Comments, quotes, flow style and the line breaks inside values stay as they were
written, and so does what the text loads to: that is compared before the answer is given.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from runbook.lang.document import LINE_BREAK
from runbook.lang.yaml_edge import Edge
from runbook.lang.yaml_loader import ANY, load
from runbook.lang.yaml_order import Order, ordered
from runbook.lang.yaml_parts import Part, parts, walk
from runbook.model.diagnostic import Diagnostic, Severity

STEP = 2


class Formatted(NamedTuple):
    """The text in its form, or None with the errors that keep it from being read."""

    text: str | None
    problems: list[Diagnostic]


def format_yaml(source: bytes | str, file: str, order: Order, edge: Edge = ANY) -> Formatted:
    """One document in its form. A text whose data would change, as one with an alias before its anchor, keeps the order it has.

    Lines end as the first one does, and a byte order mark stays.
    """
    document, problems = load(source, file, edge)
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if document is None or errors:
        return Formatted(None, errors or problems)
    text = "\n".join(LINE_BREAK.split(document.text))
    for attempt in (_form(ordered(text, order)), _form(text), text):
        same, found = load(attempt, file)
        if same is not None and same.data == document.data and not any(problem.severity is Severity.ERROR for problem in found):
            return Formatted(_dressed(attempt, source, document.text), [])
    return Formatted(_dressed(document.text, source, ""), [])  # a break that only YAML 1.1 knows, inside a value: nothing is changed


def _dressed(text: str, source: bytes | str, before: str) -> str:
    """With the mark and the line ends of the file."""
    found = LINE_BREAK.search(before)
    marked = source.startswith(b"\xef\xbb\xbf") if isinstance(source, bytes) else source.startswith("\ufeff")
    return ("\ufeff" if marked else "") + (text.replace("\n", found[0]) if found and found[0] in ("\r\n", "\r") else text)


def _form(text: str) -> str:
    return _spaced(_indented(text))


class _Start(NamedTuple):
    """A key or a dash that begins an entry: its column, and the one that it gets."""

    old: int
    new: int


def _indented(text: str) -> str:
    """Every entry at its column; what continues an entry moves along with it."""
    root = parts(text)
    if root is None:
        return text
    lines = text.split("\n")
    starts: dict[int, list[_Start]] = {}
    _place(root, 0, lines, starts)
    literal = {line: part for part in walk(root) if part.is_literal() for line in range(part.line + 1, part.last(lines) + 1)}
    inside = {line for part in walk(root) if not part.block for line in range(part.line + 1, part.last(lines) + 1)}
    begins = sorted(starts)
    open_: list[_Start] = [_Start(0, 0)]
    new: list[str] = []
    for number, line in enumerate(lines):
        if number in starts:
            found = sorted(starts[number])
            open_ = [*(one for one in open_ if one.old < found[0].old), *found]
            new.append(_restarted(line, found))
        elif not line.strip():
            new.append(line if number in inside else "")
        elif number in literal:
            new.append(_literal(line, literal[number], lines, open_[-1]))
        elif number in inside or not line.lstrip().startswith("#"):
            new.append(_shifted(line, open_[-1].new - open_[-1].old))
        else:
            following = next((starts[begin][0] for begin in begins if begin > number), None)
            new.append(" " * _comment_column(line, open_, following) + line.lstrip())
    return "\n".join(new)


def _place(part: Part, column: int, lines: list[str], starts: dict[int, list[_Start]]) -> None:
    """Note the starts of a block collection that is to stand at `column`, and of those below it."""
    if not part.block:
        return
    for child in part.children[::2] if part.is_map else part.children:
        line, old = (child.line, child.column) if part.is_map else _dash(child, lines)
        starts.setdefault(line, []).append(_Start(old, column))
    for inner in part.children[1::2] if part.is_map else part.children:
        _place(inner, column + STEP, lines, starts)


def _dash(item: Part, lines: list[str]) -> tuple[int, int]:
    """Where the dash of a list's item stands: before it, or alone on a line above it."""
    line, before = item.line, lines[item.line][: item.column].rstrip()
    while not before.endswith("-") and line > 0:
        line -= 1
        before = lines[line].partition("#")[0].rstrip()
    return line, len(before) - 1


def _restarted(line: str, starts: list[_Start]) -> str:
    dashes = "".join("-" + " " * (after.new - one.new - 1) for one, after in pairwise(starts))
    return " " * starts[0].new + dashes + line[starts[-1].old :]


def _literal(line: str, part: Part, lines: list[str], owner: _Start) -> str:
    if part.is_fixed(lines):
        return _shifted(line, owner.new - owner.old)
    first = next(text for text in lines[part.line + 1 :] if text.strip())
    return _shifted(line, owner.new + STEP - _indent(first))


def _comment_column(line: str, open_: list[_Start], following: _Start | None) -> int:
    """A comment stands with the entry whose column it has, else with the next one."""
    column = _indent(line)
    known = {one.old: one.new for one in (*open_, *([following] if following else []))}
    if column in known:
        return known[column]
    return following.new if following else max((one.new for one in open_ if one.old <= column), default=0)


def _shifted(line: str, by: int) -> str:
    return " " * max(0, _indent(line) + by) + line.lstrip(" ")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaced(text: str) -> str:
    """No blanks behind a line and no two blank lines, but inside values."""
    root = parts(text)
    lines = text.split("\n")
    kept: set[int] = set()
    for part in walk(root) if root is not None else ():
        if not part.block and not part.children:
            last = part.end - 1 if part.keeps_blanks(lines) else part.last(lines)
            kept.update(range(part.line + 1, min(last + 1, len(lines))))
            kept.update([part.line] if last > part.line and not part.is_literal() else [])
    new: list[str] = []
    for number, line in enumerate(lines):
        if number in kept:
            new.append(line)
        elif line.strip() or (new and new[-1].strip()):
            new.append(line.rstrip())
    while new and not new[-1].strip() and len(lines) - 1 not in kept:
        new.pop()
    return "\n".join(new) + ("\n" if new and new[-1] else "")
