"""A server whose launch says `at_end: keep` outlives its run, is told of, and is no failure of the cleanup."""

from __future__ import annotations

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
