"""YAML text to a `Document`: one pass over the parser's events.

Refused beside broken syntax: duplicate keys, keys that are not text, merge keys, tags, several documents, aliases that expand
beyond a bound, deep nesting, large or binary files. All problems that do not hide each other are collected.
"""

from __future__ import annotations

from typing import Any

import yaml

from runbook.lang.document import Document
from runbook.lang.source_text import decode
from runbook.lang.yaml_build import Builder, Refused
from runbook.lang.yaml_syntax import syntax_problem
from runbook.model.diagnostic import Diagnostic, Span

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it; elsewhere the slower one, with the same events."""


def load(source: bytes | str, file: str) -> tuple[Document | None, list[Diagnostic]]:
    """Load one document. There is none when the text is not YAML at all; with other errors it is there, so that more checks can run.

    The diagnostics, in the order of the text, hold errors and warnings; only a document without an error may be used.
    """
    text = decode(source, file)
    if isinstance(text, Diagnostic):
        return None, [text]
    builder = Builder(file, text)
    parser = PARSER(text)
    try:
        while parser.check_event():
            builder.take(parser.get_event())
    except yaml.YAMLError as error:
        return None, _ordered([*builder.problems, syntax_problem(error, file, text)])
    except Refused as stop:
        return None, _ordered([*builder.problems, stop.diagnostic])
    finally:
        parser.dispose()
    if builder.data is None:
        return None, [
            Diagnostic(
                code="empty-file",
                summary="the file is empty",
                span=Span(file, 1, 1),
                hint="is it the right file? it needs at least one key",
            )
        ]
    return Document(file, text, builder.data, builder.spans, builder.key_spans, builder.extents), _ordered(builder.problems)


def _ordered(problems: list[Diagnostic]) -> list[Diagnostic]:
    problems.sort(key=lambda item: (item.span.line, item.span.column) if item.span else (0, 0))
    return problems


__all__ = ["Document", "load"]
