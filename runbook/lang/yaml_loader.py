"""YAML text to a `Document`: one pass over the parser's events, without recursion.

Refused beside broken syntax: duplicate keys, keys that are not text, merge keys, tags, several documents, aliases that expand
beyond a bound, deep nesting, large or binary files. All problems that do not hide each other are collected.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from runbook.lang.document import LINE_BREAK, Document, Path
from runbook.lang.scalars import ScalarProblem, resolve
from runbook.lang.yaml_syntax import syntax_problem
from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.model.units import format_size

MAX_BYTES = 2 * 2**20
MAX_NODES = 100_000
"""Nodes of one document, aliases expanded."""
MAX_DEPTH = 100
MAX_DIAGNOSTICS = 100

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it; the same events ten times slower elsewhere."""
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def load(source: bytes | str, file: str) -> tuple[Document | None, list[Diagnostic]]:
    """Load one document. There is none when the text is not YAML at all; with other errors it is there, so that more checks can run.

    The diagnostics, in the order of the text, hold errors and warnings; only a document without an error may be used.
    """
    text, refused = _text(source, file)
    if refused is not None:
        return None, [refused]
    builder = _Builder(file, text)
    parser = _LOADER(text)
    try:
        while parser.check_event():
            builder.take(parser.get_event())
    except yaml.MarkedYAMLError as error:
        return None, _ordered([*builder.problems, syntax_problem(error, file, text)])
    except (yaml.YAMLError, _Refused) as error:
        last = error.diagnostic if isinstance(error, _Refused) else _not_yaml(file, error)
        return None, _ordered([*builder.problems, last])
    finally:
        parser.dispose()
    if not builder.started:
        return None, [Diagnostic(code="empty-file", summary="the file is empty", span=Span(file, 1, 1), hint="start with `runbook: 1`")]
    return Document(file, text, builder.data, builder.spans, builder.key_spans, builder.extents), _ordered(builder.problems)


def _text(source: bytes | str, file: str) -> tuple[str, Diagnostic | None]:
    """The text, or why it is refused before any parsing."""
    if len(source) > MAX_BYTES:
        summary = f"the file has {format_size(len(source))}, more than the {format_size(MAX_BYTES)} that a YAML file may have"
        return "", Diagnostic(
            code="file-too-large", summary=summary, span=Span(file, 1, 1), hint="is it the right file? logs and data go elsewhere"
        )
    if isinstance(source, bytes):
        if b"\0" in source:
            return "", _binary(file, "it has NUL bytes")
        try:
            text = source.decode("utf-8")
        except UnicodeDecodeError as error:
            before = source[: error.start].decode("utf-8")
            where = _place(file, before, len(before))
            return "", Diagnostic(
                code="not-utf8", summary=f"the file is not UTF-8: byte 0x{source[error.start]:02x}", span=where, hint="save it as UTF-8"
            )
    else:
        text = source
    text = text.removeprefix("\ufeff")
    odd = _NOT_TEXT.search(text)
    if odd is None:
        return text, None
    if odd[0] == "\0":
        return "", _binary(file, "it has NUL characters")
    hint = 'remove it, or write it as an escape in double quotes: "\\x1b"' if odd[0] == "\x1b" else "remove it"
    return "", Diagnostic(
        code="control-character",
        summary=f"the control character U+{ord(odd[0]):04X} is not allowed in YAML",
        span=_place(file, text, odd.start(), 1),
        hint=hint,
    )


def _binary(file: str, why: str) -> Diagnostic:
    return Diagnostic(code="not-text", summary=f"this is a binary file, not YAML: {why}", span=Span(file, 1, 1), hint="name a YAML file")


def _place(file: str, text: str, index: int, length: int = 0) -> Span:
    before = LINE_BREAK.split(text[:index])
    return Span(file, len(before), len(before[-1]) + 1, length)


def _not_yaml(file: str, error: Exception) -> Diagnostic:
    return Diagnostic(code="yaml-syntax", summary=f"this is not YAML: {str(error).splitlines()[0]}", span=Span(file, 1, 1))


def _ordered(problems: list[Diagnostic]) -> list[Diagnostic]:
    problems.sort(key=lambda item: (item.span.line, item.span.column) if item.span else (0, 0))
    return problems


class _Refused(Exception):
    """Reading on would be unsafe or pointless."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.summary)
        self.diagnostic = diagnostic


class _Frame:
    """An open collection. `key` waits for its value; `dropped` says that the value goes nowhere (its key was refused)."""

    __slots__ = ("anchor", "count_before", "dropped", "has_key", "height", "is_key", "key", "path", "value")

    def __init__(self, value: Any, path: Path, anchor: str | None, count_before: int, is_key: bool) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.count_before = count_before
        self.is_key = is_key
        self.height = 1
        self.key: str = ""
        self.has_key = False
        self.dropped = False


class _Builder:
    """Data and places from events. Depth and number of nodes are checked before anything is built from them."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = LINE_BREAK.split(text)
        self.data: Any = None
        self.started = False
        self.documents = 0
        self.count = 0
        self.spans: dict[Path, Span] = {}
        self.key_spans: dict[Path, Span] = {}
        self.extents: dict[Path, tuple[int, int]] = {}
        self.problems: list[Diagnostic] = []
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int, int]] = {}
        """By name: the value, its number of nodes, its height."""
        self.open_anchors: set[str] = set()
        self._take = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.DocumentStartEvent: self._document,
        }

    def take(self, event: Any) -> None:
        take = self._take.get(type(event))
        if take is not None:
            take(event)

    # problems and places -----------------------------------------------------------------------------------------

    def problem(self, span: Span, code: str, summary: str, hint: str, warning: bool = False) -> None:
        if len(self.problems) >= MAX_DIAGNOSTICS:
            raise _Refused(
                Diagnostic(code="too-many-problems", summary=f"more than {MAX_DIAGNOSTICS} problems: the rest is not read", span=span)
            )
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Diagnostic(code=code, summary=summary, span=span, hint=hint, severity=severity))

    def place(self, event: Any) -> Span:
        start, end = event.start_mark, event.end_mark
        length = end.column - start.column if end.line == start.line else len(self.lines[start.line].rstrip()) - start.column
        return Span(self.file, start.line + 1, start.column + 1, max(0, length))

    def _grow(self, event: Any, nodes: int, height: int) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            summary = f"the file has more than {MAX_NODES} nodes" + (" once its aliases are expanded" if self.anchors else "")
            raise _Refused(
                Diagnostic(code="too-many-nodes", summary=summary, span=self.place(event), hint="use fewer aliases, or split the file")
            )
        if len(self.stack) + height > MAX_DEPTH:
            summary = f"nested deeper than {MAX_DEPTH} levels"
            raise _Refused(
                Diagnostic(code="too-deep", summary=summary, span=self.place(event), hint="is a bracket or an indentation repeated?")
            )

    # events ------------------------------------------------------------------------------------------------------

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            diagnostic = Diagnostic(
                code="many-documents",
                summary="a second document begins here",
                span=self.place(event),
                hint="one file holds one document: remove the `---`",
            )
            raise _Refused(diagnostic)

    def _scalar(self, event: Any) -> None:
        self.started = True
        self._grow(event, 1, 0)
        span = self.place(event)
        plain = event.implicit[0] and event.tag is None
        value, problem = resolve(event.value) if plain else (event.value, None)
        self._check_tag(event, span)
        if self._wants_key():
            self._key(event, span, value, plain)
            return
        if problem is not None:
            self.problem(span, *problem)
        path = self._attach(value, span)
        if "${{" in event.value:
            self.extents.setdefault(path, (event.start_mark.index, event.end_mark.index))
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, 0)

    def _start(self, event: Any) -> None:
        self.started = True
        self._grow(event, 1, 1)
        self._check_tag(event, self.place(event))
        value: Any = {} if type(event) is yaml.MappingStartEvent else []
        is_key = self._wants_key()
        if is_key:
            self._odd_key(event)
            path: Path = (*self.stack[-1].path, "")
        else:
            path = self._attach(value, self.place(event))
        self.stack.append(_Frame(value, path, event.anchor, self.count - 1, is_key))
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)

    def _end(self, event: Any) -> None:
        frame = self.stack.pop()
        if frame.is_key:
            self.stack[-1].has_key = self.stack[-1].dropped = True
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, frame.height + 1)
        if frame.anchor is not None:
            self.open_anchors.discard(frame.anchor)
            self.anchors[frame.anchor] = (frame.value, self.count - frame.count_before, frame.height)
        self._stretch(frame.path, event)

    def _stretch(self, path: Path, event: Any) -> None:
        """A flow collection on one line is known in length only at its end."""
        span = self.spans.get(path)
        if span is not None and span.line == event.end_mark.line + 1 and event.end_mark.column >= span.column:
            self.spans[path] = Span(self.file, span.line, span.column, event.end_mark.column + 1 - span.column)

    def _alias(self, event: Any) -> None:
        span = self.place(event)
        if event.anchor in self.open_anchors:
            raise _Refused(
                Diagnostic(
                    code="alias-loop",
                    summary=f"the alias `*{event.anchor}` stands inside its own anchor",
                    span=span,
                    hint="write the value out",
                )
            )
        value, nodes, height = self.anchors.get(event.anchor, (None, 1, 0))
        self._grow(event, nodes, height)
        if event.anchor not in self.anchors:
            self.problem(
                span,
                "unknown-alias",
                f"there is no anchor `&{event.anchor}` before this alias",
                f"to write text, quote it: '*{event.anchor}'",
            )
        if self._wants_key():
            self._odd_key(event)
            self.stack[-1].has_key = self.stack[-1].dropped = True
            return
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, height + 1)
        self._attach(_copy(value), span)

    # keys and values ---------------------------------------------------------------------------------------------

    def _wants_key(self) -> bool:
        return bool(self.stack) and type(self.stack[-1].value) is dict and not self.stack[-1].has_key

    def _key(self, event: Any, span: Span, value: Any, plain: bool) -> None:
        frame = self.stack[-1]
        frame.has_key = True
        frame.key = event.value
        frame.dropped = False
        path = (*frame.path, event.value)
        if plain and event.value == "<<":
            frame.dropped = True
            self.problem(
                span,
                "merge-key",
                "merge keys `<<` are not part of YAML 1.2",
                "write the keys out, or put the whole mapping behind an anchor",
            )
        elif not isinstance(value, str):
            self.problem(span, "key-not-text", f"the key `{event.value[:60]}` is not text", f"quote it: '{event.value[:60]}'")
        if event.value in frame.value:
            frame.dropped = True
            first = self.key_spans[path]
            self.problem(
                span,
                "duplicate-key",
                f"the key `{event.value[:60]}` is there twice, first at {first}",
                "remove one, or give it another name",
            )
        self.key_spans.setdefault(path, span)

    def _odd_key(self, event: Any) -> None:
        span = self.place(event)
        braces = type(event) is yaml.MappingStartEvent and event.flow_style
        hint = (
            "an expression is written `${{ … }}`; text that begins with `{` must be quoted" if braces else "write a plain name, or quote it"
        )
        self.problem(span, "key-not-text", "a key must be text, not a list, mapping or alias", hint)

    def _attach(self, value: Any, span: Span) -> Path:
        """Put a value where it belongs and note its place. Of a duplicate key the first value stays."""
        if not self.stack:
            self.data = value
            self.spans[()] = span
            return ()
        frame = self.stack[-1]
        path: Path
        if type(frame.value) is list:
            path = (*frame.path, len(frame.value))
            frame.value.append(value)
        else:
            path = (*frame.path, frame.key)
            if not frame.dropped:
                frame.value[frame.key] = value
            frame.has_key = False
        self.spans.setdefault(path, span)
        return path

    def _check_tag(self, event: Any, span: Span) -> None:
        if event.tag is not None:
            self.problem(
                span,
                "tag",
                f"the tag `{event.tag[:60]}` is not allowed",
                "text that begins with `!` must be quoted; a quoted value is text",
            )


def _copy(value: Any) -> Any:
    """A value of its own for each alias, so that nobody changes two places at once."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


__all__ = ["Document", "ScalarProblem", "load"]
