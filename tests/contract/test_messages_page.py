"""The page that sets our messages beside those of others says what `validate` says now; theirs are recorded."""

from __future__ import annotations

import json

from tests.benchmarks import messages


def test_the_page_is_what_its_command_writes():
    assert messages.PAGE.read_text() == messages.page(), "run: python tests/benchmarks/messages.py page"


def test_each_case_was_put_to_everybody_and_is_told_by_us():
    kept = json.loads(messages.RECORD.read_text())["said"]
    for case in messages.cases():
        assert set(kept[case["kind"]]) == {"ansible", "workflow"}
        assert "error[" in messages.ours(case["runbook"]), case["kind"]
