"""The rules as a page: from the id printed in a transcript to the rule's meaning, its source and its tests.

Write it with `python -m tests.diagnose.rule_table`; a test fails when the committed page differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
BETWEEN = """## Rules of steps

Some verdicts are a step's own, beside the judge; `runbook judge` does not derive them again.

| rule | verdict | source | tests |
|---|---|---|---|
"""


class Own(NamedTuple):
    """A rule that a step applies by itself: its id, verdict, when it fires, and the files of its source and its tests."""

    id: str
    verdict: str
    when: str
    source: str
    tests: str

    @property
    def files(self) -> str:
        """Links to both."""
        return f"{_link(ROOT / self.source)} | {_link(ROOT / self.tests)}"


OWN = (
    Own(
        "port_taken_before_launch",
        "wrong_server",
        "something listened on the launch's port before anything was started.",
        "runbook/steps/launch.py",
        "tests/e2e/test_bad_input.py",
    ),
    Own(
        "server_identity",
        "invalid_experiment or undecided",
        "the server that is ready says that it runs another model, port or flag than was asked for; or it could not be asked.",
        "runbook/steps/identity.py",
        "tests/steps/test_wait_healthy.py",
    ),
    Own(
        "request_lost",
        "unreachable",
        "the link was lost while a request was under way, so nobody knows whether the server has got it.",
        "runbook/steps/request.py",
        "tests/steps/test_request.py",
    ),
    *(
        Own(id, verdict, when, "runbook/steps/checkpoint.py", "tests/steps/test_checkpoint.py")
        for id, verdict, when in (
            (
                "checkpoint_damaged",
                "failed",
                "a file of the checkpoint is missing, cut, half-written, or does not hold what its index says.",
            ),
            ("checkpoint_differs", "failed", "keys, shapes or types are not those that were expected, or those of the other side."),
            ("checkpoint_blind", "undecided", "nothing wrong was found, but a part could not be read."),
            ("checkpoint_whole", "passed", "all that was asked about was read, and it is as expected."),
        )
    ),
    *(
        Own(id, verdict, when, "runbook/steps/grep.py", "tests/steps/test_grep.py")
        for id, verdict, when in (
            ("grep_found", "passed", "the log holds as many lines as were asked for, or more."),
            ("grep_counted", "passed", "it holds a number of them between the bounds."),
            ("grep_too_few", "failed", "it holds fewer, and all of the window was read."),
            ("grep_too_many", "failed", "it holds more than the upper bound."),
            ("grep_unexpected", "failed", "it holds a line that was to be absent."),
            ("grep_absent", "passed", "no such line is there, in a window that was read to its end and could have held one."),
            ("grep_blind", "undecided", "none is there, but a part of the window was not to be seen, or nobody could have written it."),
        )
    ),
    Own("run_ended", "passed", "the command of a `run` step has ended.", "runbook/steps/running.py", "tests/steps/test_run.py"),
    Own(
        "not_looked",
        "the run's own",
        "`runbook diagnose` never came to look: its run ended before, for the reason that is given.",
        "runbook/cli/diagnose.py",
        "tests/cli/test_diagnose.py",
    ),
)
"""Rules that are none of the judge's."""


def page() -> str:
    """The whole page."""
    rows = [f"| [`{rule.__name__}`](#{rule.__name__}) | {_verdict(rule)} | {_source(rule)} | {_tests(rule)} |" for rule in RULES]
    own = [f"| [`{rule.id}`](#{rule.id}) | {rule.verdict} | {rule.files} |" for rule in OWN]
    sections = [*(_section(rule) for rule in RULES), BETWEEN + "\n".join(own), *map(_own_section, OWN)]
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def _own_section(rule: Own) -> str:
    source, _, tests = rule.files.partition(" | ")
    return f"## {rule.id}\n\n`{rule.verdict}`: {rule.when}\n\nSource: {source}, tests: {tests}."


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
