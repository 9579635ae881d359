"""Diagnostics as SARIF and as GitHub's workflow commands."""

from __future__ import annotations

from runbook.model.diagnostic import Diagnostic, Severity, Span
from runbook.render.findings import as_github, as_sarif

ODD = Diagnostic(code="x", summary="50% of `a`:\nb", hint="c, d", span=Span("p, q/a:b.yaml", 3, 5, 4))
PLACELESS = Diagnostic(code="y", summary="warned", severity=Severity.WARNING)


def test_a_workflow_command_escapes_what_would_end_its_parts():
    assert as_github([ODD, PLACELESS]) == (
        "::error file=p%2C q/a%3Ab.yaml,line=3,col=5,endColumn=9,title=x::50%25 of `a`:\\nb; c, d\n::warning title=y::warned\n"
    )


def test_a_sarif_log_has_the_place_in_characters_and_every_rule_once():
    log = as_sarif([ODD, PLACELESS, PLACELESS])
    (run,) = log["runs"]
    assert log["version"] == "2.1.0" and run["columnKind"] == "unicodeCodePoints"
    assert run["tool"]["driver"]["rules"] == [{"id": "x"}, {"id": "y"}]
    first, second, _ = run["results"]
    assert first["level"] == "error" and first["ruleId"] == "x"
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "p, q/a:b.yaml"}, "region": {"startLine": 3, "startColumn": 5, "endColumn": 9}}
    assert second["level"] == "warning" and "locations" not in second
