"""A server whose launch says `at_end: keep` outlives its run, is told of, and is no failure of the cleanup."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import pytest

from runbook.model.event import Registered
from tests.engine.real import run_here
from tests.support.processes import is_gone

BOOK = f"""\
runbook: 1
name: kept
hosts: {{here: local}}
steps:
- id: server
  launch: {{command: ['{sys.executable}', '-c', 'import signal; signal.pause()'], at_end: keep, settle: 100ms}}
"""


@pytest.mark.slow
def test_a_kept_server_is_told_of_and_the_run_has_passed(tmp_path):
    ended, events = run_here(BOOK, tmp_path)
    (state,) = [event.data["state"] for event in events if isinstance(event, Registered)]
    try:
        assert (ended.verdict, ended.exit_code, ended.cleanup) == ("passed", 0, "passed"), ended.reason
        (told,) = ended.left_behind
        assert "`server`" in told and f"pid {state['pid']}" in told and "kept as asked" in told and state["log"] in told
        assert not is_gone(state["pid"]) and os.path.exists(state["log"])
    finally:
        os.kill(state["pid"], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kept_first", [True, False])
def test_a_kept_server_outlives_the_end_of_one_beside_it_that_is_not_kept(tmp_path, kept_first):
    other = "- id: other\n  launch: {command: [sleep, '600'], settle: 100ms}\n"
    head, server = BOOK.split("- id", 1)
    steps = [f"- id{server}", other]
    ended, events = run_here(head + "".join(steps if kept_first else reversed(steps)), tmp_path)
    pids = {event.step: event.data["state"]["pid"] for event in events if isinstance(event, Registered)}
    try:
        assert (ended.verdict, ended.cleanup) == ("passed", "passed"), ended.reason
        assert is_gone(pids["other"]) and not is_gone(pids["server"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids["server"], signal.SIGKILL)
