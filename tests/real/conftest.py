"""Which engines are set up, the lab that they run on, and what was skipped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import lab, port
from tests.real.place import real_dir
from tests.real.setup import ready

__all__ = ["lab", "port"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in this folder is `real`."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("real")


def need(engine: str) -> None:
    """Skip with the reason and the command that ends it."""
    if not ready(engine):
        pytest.skip(f"{engine} is not set up in {real_dir()}: python -m tests.real.setup {engine}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Green because nothing was there is not green: say what was not looked at."""
    skipped = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])]
    for reason, count in Counter(skipped).items():
        terminalreporter.write_line(f"not tested, {count}: {reason}")
