"""A Python file as text that comes back byte for byte: encoding, BOM and line ends kept, places as offsets, edits as insertions."""

from __future__ import annotations

import ast
import bisect
import codecs
import io
import re
import tokenize
from collections.abc import Iterable

import msgspec

from runbook.model.diagnostic import Diagnostic, Span

_LINE = re.compile(r"\r\n|\n|\r")
_REST = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\r\n]*)?")


class Insertion(msgspec.Struct, frozen=True, order=True):
    """Text that goes in at an offset. Of several at one place, lower ranks come first, then lower orders."""

    offset: int
    rank: int
    order: int
    text: str


def after_line(source: Source, stop: int, indent: str, text: str, order: int) -> Insertion:
    """A line of its own behind the line that stops there, which may lack its end."""
    line = indent + text
    return Insertion(stop, line_rank(indent), order, line + source.eol if source.text[:stop].endswith(("\n", "\r")) else source.eol + line)


def line_rank(indent: str) -> int:
    """Between two lines the deeper one comes first: it still belongs to the block that ends there."""
    return -len(indent.expandtabs())


SAME_LINE = -(10**6)
"""Rank of what goes into a line that is there: before any new line."""


class Source:
    """Decoded text of a file with its syntax tree. Lines end as Python's reader ends them: \\r\\n, \\n or \\r."""

    def __init__(self, text: str, encoding: str, bom: bytes, tree: ast.Module) -> None:
        self.text = text
        self.encoding = encoding
        self.bom = bom
        self.tree = tree
        ends = [match.end() for match in _LINE.finditer(text)]
        self._starts = [0, *ends]
        found = _LINE.search(text)
        self.eol = found[0] if found else "\n"

    def offset(self, line: int, column: int) -> int:
        """Offset in characters of a place of the tree: line from 1, column in UTF-8 bytes."""
        start = self._starts[line - 1]
        if column == 0:
            return start
        return start + len(self.line(line).encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass"))

    def start(self, node: ast.stmt) -> int:
        """Where a statement begins; its decorators belong to it."""
        line = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
        if line == node.lineno:
            return self.offset(line, node.col_offset)
        return self._starts[line - 1] + _indent_width(self.line(line))

    def end(self, node: ast.stmt) -> int:
        """Offset just behind a statement."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def line(self, number: int) -> str:
        """A line without its end."""
        return _LINE.sub("", self.text[self._starts[number - 1] : self._line_stop(number)])

    def line_of(self, offset: int) -> int:
        """The line that an offset lies in, from 1."""
        return bisect.bisect_right(self._starts, offset)

    def line_start(self, offset: int) -> int:
        """Where the line of an offset begins."""
        return self._starts[self.line_of(offset) - 1]

    def line_stop(self, offset: int) -> int:
        """Where the line of an offset ends, its line end included."""
        return self._line_stop(self.line_of(offset))

    def _line_stop(self, number: int) -> int:
        return self._starts[number] if number < len(self._starts) else len(self.text)

    def logical_stop(self, offset: int) -> int:
        """Where the line stops that a statement ends in; a backslash takes the next line in."""
        stop = self.line_stop(offset)
        while not self.ends_line(offset) and self.text[offset:stop].rstrip("\r\n").endswith("\\") and stop < len(self.text):
            offset, stop = stop, self.line_stop(stop)
        return stop

    def begins_line(self, offset: int) -> bool:
        """Whether nothing but indentation stands before the offset, and the line continues no other."""
        start = self.line_start(offset)
        number = self.line_of(offset)
        joined = number > 1 and self.line(number - 1).endswith("\\")
        return not joined and not self.text[start:offset].strip(" \t\f")

    def ends_line(self, offset: int) -> bool:
        """Whether nothing but a semicolon and a comment stands behind the offset."""
        stop = self.line_stop(offset)
        return _REST.fullmatch(_LINE.sub("", self.text[offset:stop])) is not None

    def indent(self, offset: int) -> str:
        """The white space before the first statement of the offset's line."""
        start = self.line_start(offset)
        return self.text[start : start + _indent_width(self.text[start:offset])]

    def encode(self, text: str) -> bytes:
        """Bytes of a text in this file's encoding, BOM first."""
        return self.bom + text.encode(self.encoding)

    def insert(self, insertions: Iterable[Insertion]) -> str:
        """The text with these insertions; everything else stays."""
        parts, last = [], 0
        for insertion in sorted(insertions):
            parts += [self.text[last : insertion.offset], insertion.text]
            last = insertion.offset
        return "".join([*parts, self.text[last:]])


def _indent_width(line: str) -> int:
    return len(line) - len(line.lstrip(" \t\f"))


def read_text(data: bytes, path: str) -> tuple[str, str, bytes] | Diagnostic:
    """(text, encoding, BOM) of a Python file; a problem when it would not come back byte for byte."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        bom = codecs.BOM_UTF8 if encoding == "utf-8-sig" else b""
        encoding = "utf-8" if bom else encoding
        text = data[len(bom) :].decode(encoding)
        if text.encode(encoding) != data[len(bom) :]:
            return _problem("encoding", path, f"cannot be decoded as {encoding} and encoded again without loss")
    except (SyntaxError, LookupError, UnicodeError) as error:
        return _problem("encoding", path, f"is not readable as Python text: {error}")
    return text, encoding, bom


def parse(text: str, encoding: str, bom: bytes, path: str) -> Source | Diagnostic:
    """The source with its tree, or why this Python cannot parse it."""
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        place = Span(path, error.lineno or 1, error.offset or 1)
        return Diagnostic(
            code="syntax", summary=f"not valid Python for this reader: {error.msg}", span=place, hint="it may need a newer Python here"
        )
    except (ValueError, RecursionError, MemoryError) as error:
        return _problem("syntax", path, f"cannot be parsed: {error}")
    return Source(text, encoding, bom, tree)


def _problem(code: str, path: str, summary: str) -> Diagnostic:
    return Diagnostic(code=code, summary=summary, span=Span(path, 1, 1), hint="is it the Python source that the server imports?")
