"""The rules as a page: from the id printed in a transcript to the rule's meaning, its source and its tests.

Write it with `python -m tests.diagnose.rule_table`; a test fails when the committed page differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook.diagnose.judge import RULES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "rules.md"
HEAD = """# Rules

Every verdict cites the rule that gave it. The rules are tried in this order, and the first that fires wins; how they fit together is
told in [Verdicts](../concepts/verdicts.md). `runbook judge RUN --rules` shows for each one why it fired or did not.

This page is made from the rules' own descriptions: `python -m tests.diagnose.rule_table` writes it.

| rule | verdict | source | tests |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [f"| [`{rule.__name__}`](#{rule.__name__}) | {_verdict(rule)} | {_source(rule)} | {_tests(rule)} |" for rule in RULES]
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(_section(rule) for rule in RULES) + "\n"


def source_of(rule: Callable[..., Any]) -> Path:
    """The file of a rule."""
    return Path(inspect.getsourcefile(rule) or "")


def test_file(rule: Callable[..., Any]) -> Path:
    """The tests of a rule's family; those of the oldest families share one file."""
    path = Path(__file__).parent / f"test_{source_of(rule).stem}.py"
    return path if path.exists() else Path(__file__).parent / "test_judge.py"


def _verdict(rule: Callable[..., Any]) -> str:
    return " ".join((rule.__doc__ or "").split()).partition(":")[0]


def _link(path: Path) -> str:
    return f"[{path.name}](../../{path.relative_to(ROOT)})"


def _source(rule: Callable[..., Any]) -> str:
    return _link(source_of(rule))


def _tests(rule: Callable[..., Any]) -> str:
    return _link(test_file(rule))


def _section(rule: Callable[..., Any]) -> str:
    """Heading, verdict, when it fires and its live twins; the first line of a description begins with the verdict."""
    paragraphs = [" ".join(text.split()) for text in inspect.cleandoc(rule.__doc__ or "").split("\n\n")]
    body = "\n\n".join(_capital(text) for text in paragraphs)
    return f"## {rule.__name__}\n\n{body}\n\nSource: {_source(rule)}, tests: {_tests(rule)}."


def _capital(text: str) -> str:
    head, colon, rest = text.partition(": ")
    if " " not in head:
        return f"`{head}`{colon}{rest}"
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
