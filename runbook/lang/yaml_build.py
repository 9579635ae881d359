"""Data and places from the events of a YAML parser, without recursion."""

from __future__ import annotations

import re
from typing import Any

import yaml

from runbook.lang import yaml_tags
from runbook.lang.document import LINE_BREAK, Path
from runbook.lang.scalars import resolve
from runbook.model.diagnostic import Diagnostic, Severity, Span

MAX_NODES = 100_000
"""Nodes of one document, aliases expanded."""
MAX_DEPTH = 100
MAX_DIAGNOSTICS = 100

_FUSED = re.compile(r"([A-Za-z_][\w-]*):[^\s:/]")
_EQUALS = re.compile(r"([A-Za-z_][\w-]*) *=(?!=) *")
_DASH = re.compile(r"-[A-Za-z_]\w*$")
_OPEN = re.compile(r"[A-Za-z_][\w-]*(?::?| *=) *\{")
"""A key that took the bracket of its value along, as `hosts {gpu` of `hosts {gpu: lab}`."""
_MERGE_HINT = "write the keys out, or put the whole mapping behind an anchor"
_BRACES_HINT = "an expression is written `${{ … }}`; text that begins with `{` must be quoted"


class Refused(Exception):
    """Reading on would be unsafe or pointless."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.summary)
        self.diagnostic = diagnostic


def refused(span: Span, code: str, summary: str, hint: str) -> Refused:
    """A reason to stop."""
    return Refused(Diagnostic(code=code, summary=summary, span=span, hint=hint))


def too_deep() -> tuple[str, str, str]:
    """Code, summary and hint of deep nesting, which the parser may notice first."""
    return "too-deep", f"nested deeper than {MAX_DEPTH} levels", "is a bracket or an indentation repeated?"


def no_key(text: str) -> tuple[str, str, str]:
    """Code, summary and hint of a line that was to be `key: value`: `run nvidia-smi`, `hosts {gpu: lab}`, `port:30000`."""
    if (equals := _EQUALS.match(text)) is not None:
        return "key-without-colon", f"`{equals[1]}` has a `=` in place of `:`", f"write `{equals[1]}: {text[equals.end() :][:60]}`"
    found = _FUSED.match(text)
    word, rest = (found[1], text[found.end() - 1 :]) if found else (re.split(r"[\s{\[]", text, maxsplit=1)[0], "")
    said = f"{word}: {rest or text[len(word) :].strip()}".rstrip()
    shown = said if len(said) <= 60 else said[:60] + "…"
    if found:
        return "missing-blank", f"there is no blank after the `:` of `{word}`, so this line is no `key: value`", f"write `{shown}`"
    sure = said.endswith(("}", "]"))
    hint = f"write `{shown}`" + ("" if sure else "; text over several lines begins with `|` or `>`")
    return "key-without-colon" if sure else "missing-colon", f"`{word}` has no `:`, so this line is no `key: value`", hint


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


class Builder:
    """Data and places from events. Depth and number of nodes are checked before anything is built from them."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = LINE_BREAK.split(text)
        self.data: Any = None
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
        self.quoted: Any = None
        """The last event if it was a quoted text over several lines: it may have swallowed them."""
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
        self.quoted = None
        if take is not None:
            take(event)

    # problems and places -----------------------------------------------------------------------------------------

    def problem(self, span: Span, code: str, summary: str, hint: str, warning: bool = False) -> None:
        if len(self.problems) >= MAX_DIAGNOSTICS:
            raise refused(span, "too-many-problems", f"more than {MAX_DIAGNOSTICS} problems: the rest is not read", "repair these first")
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
            raise refused(self.place(event), "too-many-nodes", summary, "use fewer aliases, or split the file")
        if len(self.stack) + height > MAX_DEPTH:
            raise refused(self.place(event), *too_deep())

    # events ------------------------------------------------------------------------------------------------------

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise refused(self.place(event), "many-documents", "a second document begins here", "one file, one document: remove the `---`")

    def _scalar(self, event: Any) -> None:
        self._grow(event, 1, 0)
        span = self.place(event)
        text = event.value
        if event.style in ("'", '"') and event.end_mark.line > event.start_mark.line:
            self.quoted = event
        if event.tag is not None:
            self._check_tag(event, span)
        value, problem = resolve(text) if event.implicit[0] and event.tag is None else (text, None)
        if event.tag is not None:
            value = yaml_tags.meant(event.tag, text, not event.style)
        if self._wants_key():
            self._key(event, span, text, value, problem is not None and not problem.warning)
            return
        if problem is not None:
            self.problem(span, *problem)
        path = self._attach(value, span)
        if "${{" in text:
            self.extents.setdefault(path, (event.start_mark.index, event.end_mark.index))
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, 0)

    def _start(self, event: Any) -> None:
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
            raise refused(span, "alias-loop", f"the alias `*{event.anchor}` stands inside its own anchor", "write the value out")
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

    def _key(self, event: Any, span: Span, text: str, value: Any, refused_scalar: bool) -> None:
        frame = self.stack[-1]
        frame.has_key = True
        frame.key = text
        frame.dropped = False
        path = (*frame.path, text)
        shown = text[:60]
        if event.implicit[0] and _DASH.match(text) and not self.lines[span.line - 1][: span.column - 1].strip():
            summary = f"there is no blank after the `-` of `{shown}`, so this is no item of a list"
            raise refused(Span(self.file, span.line, span.column, len(text)), "missing-dash-blank", summary, f"write `- {shown[1:]}:`")
        if event.implicit[0] and _OPEN.match(text) and text.count("{") != text.count("}"):
            line = self.lines[span.line - 1]
            whole = line[span.column - 1 :].partition(" #")[0].rstrip()
            if whole.endswith("}"):
                raise refused(Span(self.file, span.line, span.column, len(whole)), *no_key(whole))
        if not isinstance(value, str) or refused_scalar:
            self.problem(span, "key-not-text", f"the key `{shown}` is not text", f"quote it: '{shown}'")
        elif text == "<<" and event.implicit[0]:
            frame.dropped = True
            self.problem(span, "merge-key", "merge keys `<<` are not part of YAML 1.2", _MERGE_HINT)
        if text in frame.value:
            frame.dropped = True
            first = self.key_spans[path]
            self.problem(span, "duplicate-key", f"the key `{shown}` is there twice, first at {first}", "remove or rename one")
        self.key_spans.setdefault(path, span)

    def _odd_key(self, event: Any) -> None:
        if any(frame.is_key for frame in self.stack):
            return  # the outermost key is refused already
        braces = type(event) is yaml.MappingStartEvent and event.flow_style
        hint = _BRACES_HINT if braces else "write a plain name, or quote it"
        self.problem(self.place(event), "key-not-text", "a key must be text, not a list, mapping or alias", hint)

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
            scalar = type(event) is yaml.ScalarEvent
            hint = yaml_tags.hint(event.tag, scalar and not event.style, event.value if scalar else "")
            self.problem(span, "tag", f"the tag `{yaml_tags.shown(event.tag)}` is not allowed", hint)


def _copy(value: Any) -> Any:
    """A value of its own for each alias, so that nobody changes two places at once."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
