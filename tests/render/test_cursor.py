"""The events of a journal by cursor: what an agent asks for again and again."""

from __future__ import annotations

import json

import msgspec
import pytest

from runbook.render.cursor import EVENT_CAP, page
from tests.cli.recorded import events

LINES = [msgspec.json.encode(event) + b"\n" for event in events()]


def test_following_the_cursor_gives_every_event_once_and_in_order():
    seen, cursor = [], 0
    many = LINES * 200
    while (got := page(many, cursor))["events"]:
        assert len(json.dumps(got, ensure_ascii=False).encode()) <= 32 * 1024
        assert got["more"] is (got["cursor"] < len(many))
        seen += [event["n"] for event in got["events"]]
        cursor = got["cursor"]
    assert seen == list(range(len(many))) and not got["more"] and got["cursor"] == len(many)


def test_the_same_cursor_gives_the_same_events_also_when_there_are_more_by_now():
    before = page(LINES[:3], 1)["events"]
    assert page(LINES, 1)["events"][: len(before)] == before


def test_a_line_that_is_still_being_written_is_left_for_the_next_call():
    assert page([*LINES[:2], LINES[2][:-1]], 0)["cursor"] == 2


def test_a_large_event_is_cut_to_its_cap_and_names_what_went_and_where_it_is():
    text = "é" * 3000
    long = {
        "event": "step_ended",
        "step": "s",
        "reason": text,
        "result": {"out": [text] * 9},
        "marks": {f"/log/{n}": n for n in range(900)},
    }
    (event,) = page([json.dumps(long).encode() + b"\n"], 0)["events"]
    assert len(msgspec.json.encode(event)) <= EVENT_CAP + 256
    assert event["cut"] == ["result (line 1 of events.jsonl)", "marks (line 1 of events.jsonl)"]
    assert event["step"] == "s" and event["reason"].endswith("[cut, whole in events.jsonl]") and len(event["reason"].encode()) <= 2048


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"[1]\n", b'{"event":\n', b"\n", b"[" * 5000 + b"\n"])
def test_a_line_that_is_no_event_keeps_its_place(line):
    got = page([LINES[0], line, LINES[1]], 0)
    assert [event["event"] for event in got["events"]] == ["run_started", "unreadable", "host_connected"] and got["cursor"] == 3
