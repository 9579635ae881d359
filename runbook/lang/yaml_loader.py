"""YAML text to a `Document`: one pass over the parser's events.

Refused beside broken syntax: duplicate keys, keys that are not text, merge keys, tags, several documents, aliases that expand
beyond a bound, deep nesting, large or binary files. All problems that do not hide each other are collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from msgspec.structs import replace

from runbook.lang.document import Document
from runbook.lang.source_text import decode
from runbook.lang.yaml_build import Builder, Refused
from runbook.lang.yaml_edge import Edge
from runbook.lang.yaml_mend import Mended
from runbook.lang.yaml_syntax import syntax_problem
from runbook.model.diagnostic import Diagnostic, Span

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it; elsewhere the slower one, with the same events."""
ANY = Edge()
"""Of a file whose keys are not known."""


def load(source: bytes | str, file: str, edge: Edge = ANY) -> tuple[Document | None, list[Diagnostic]]:
    """Load one document. There is none when the text is not YAML at all; with other errors it is there, so that more checks can run.

    The diagnostics, in the order of the text, hold errors and warnings; only a document without an error may be used.
    Broken syntax is mended where it is plain what was meant, and read on from there; `edge` knows the keys of the left edge.
    """
    text = decode(source, file)
    if isinstance(text, Diagnostic):
        return None, [text]
    builder, stop = _read(text, file, edge)
    if stop is None:
        return _document(builder, text)
    mended, broken = Mended(text), [stop]
    while mended.mend(stop):
        builder, after = _read(mended.text, file, edge)
        if after is None:
            return _document(builder, mended.text, mended, broken)
        if _place(after) <= _place(stop) or (mended.guessed and _place(after)[0] <= _place(stop)[0] + 1):
            break  # the mend was no good: what follows may be of our own making
        stop, found = after, _in_the_file(after, mended)
        if any(_place(found) == _place(one) for one in broken):
            break  # mended and still wrong: to be told once
        broken.append(found)
    return None, _ordered([*(_in_the_file(one, mended) for one in builder.problems), *broken])


def _read(text: str, file: str, edge: Edge) -> tuple[Builder, Diagnostic | None]:
    """What the events build, and what stopped the reading."""
    builder = Builder(file, text)
    parser = PARSER(text)
    try:
        while parser.check_event():
            builder.take(parser.get_event())
    except yaml.YAMLError as error:
        stop = syntax_problem(error, file, text, builder.quoted)
        return builder, (edge.at(builder.lines, stop.span.line, file) if stop.span else None) or stop
    except Refused as stop:
        return builder, stop.diagnostic
    finally:
        parser.dispose()
    return builder, edge.misread(builder.data, builder.key_spans, builder.lines)


def _document(
    builder: Builder, text: str, mended: Mended | None = None, broken: Sequence[Diagnostic] = ()
) -> tuple[Document | None, list[Diagnostic]]:
    """The document; of a mended text with all places as they are in the file."""
    file = builder.file
    if builder.data is None:
        hint = "is it the right file? it needs at least one key"
        empty = Diagnostic(code="empty-file", summary="the file is empty", span=Span(file, 1, 1), hint=hint)
        return None, [*broken] or [empty]
    spans, key_spans, problems = builder.spans, builder.key_spans, builder.problems
    if mended is not None:
        spans = {path: mended.original(span) for path, span in spans.items()}
        key_spans = {path: mended.original(span) for path, span in key_spans.items()}
        problems = [_in_the_file(one, mended) for one in problems if not (one.code == "duplicate-key" and mended.is_guess(one))]
    document = Document(file, text, builder.data, spans, key_spans, builder.extents, mended)
    return document, _ordered([*problems, *broken])


def _in_the_file(problem: Diagnostic, mended: Mended) -> Diagnostic:
    return replace(problem, span=mended.original(problem.span)) if problem.span is not None else problem


def _place(problem: Diagnostic) -> tuple[int, int]:
    return (problem.span.line, problem.span.column) if problem.span is not None else (0, 0)


def _ordered(problems: list[Diagnostic]) -> list[Diagnostic]:
    problems.sort(key=lambda item: (item.span.line, item.span.column) if item.span else (0, 0))
    return problems


__all__ = ["Document", "load"]
