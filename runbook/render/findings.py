"""Diagnostics for other tools: SARIF 2.1.0 for code scanning, workflow commands for GitHub's annotations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from runbook import __version__
from runbook.model.diagnostic import Diagnostic
from runbook.render.diagnostics import visible

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def as_sarif(diagnostics: Iterable[Diagnostic]) -> dict[str, Any]:
    """One SARIF log with one run. Columns count characters; files are relative as they were named."""
    found = list(diagnostics)
    driver = {"name": "runbook", "version": __version__, "rules": [{"id": code} for code in sorted({one.code for one in found})]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(one) for one in found]}
    return {"$schema": SARIF, "version": "2.1.0", "runs": [run]}


def _result(one: Diagnostic) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": one.code, "level": one.severity.value, "message": {"text": _sentence(one)}}
    if one.span is not None:
        region: dict[str, Any] = {"startLine": one.span.line, "startColumn": one.span.column}
        if one.span.length:
            region["endColumn"] = one.span.column + one.span.length
        path = PurePath(one.span.file)
        uri = path.as_uri() if path.is_absolute() else path.as_posix()
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]
    return result


def as_github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a line: `::error file=…,line=…,col=…,title=CODE::…`. Each ends in a line break."""
    return "".join(f"{_command(one)}\n" for one in diagnostics)


def _command(one: Diagnostic) -> str:
    span = one.span
    place = {"file": span.file, "line": span.line, "col": span.column} if span else {}
    if span and span.length:
        place["endColumn"] = span.column + span.length
    values = ",".join(f"{key}={_property(str(value))}" for key, value in {**place, "title": one.code}.items())
    return f"::{one.severity.value} {values}::{_escaped(_sentence(one))}"


def _sentence(one: Diagnostic) -> str:
    return visible(f"{one.summary}; {one.hint}" if one.hint else one.summary)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
