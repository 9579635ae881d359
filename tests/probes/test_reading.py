"""Records come back whole from files that were cut, mixed with other text, or written by several processes."""

from __future__ import annotations

import json

from runbook.probes.reading import head, read

MARKER = 'run"1/taps/1'


def line(**record) -> bytes:
    base = {"runbook": MARKER, "seq": 1, "pid": 7, "start": 70, "rank": None, "time": 5.0}
    return json.dumps({**base, **record}).encode() + b"\n"


def hit(**record) -> bytes:
    return line(kind="hit", probe=0, **record)


def test_a_record_is_found_behind_other_text_on_its_line():
    log = b"Loading 50%|####  |\r 60%" + hit(shown={"x": 1}) + b"\xff\xfe noise\n(RayWorker pid=3) " + hit(seq=2)
    assert [one.seq for one in read(log, MARKER).hits] == [1, 2]


def test_a_torn_line_is_counted_and_costs_only_itself():
    data = hit(seq=1) + hit(seq=2)[:60] + hit(seq=3) + hit(seq=4)[:-20]
    found = read(data, MARKER)
    assert [one.seq for one in found.hits] == [1, 3] and found.torn == 2


def test_records_of_another_patch_are_not_ours():
    assert read(hit(), "run2/taps/1").hits == ()


def test_hits_are_sorted_by_time_rank_and_seq():
    data = hit(time=2.0, rank=1, seq=9) + hit(time=2.0, rank=0, seq=8) + hit(time=1.0, rank=3, seq=7) + hit(time=2.0, rank=0, seq=2)
    assert [(one.time, one.rank, one.seq) for one in read(data, MARKER).hits] == [(1.0, 3, 7), (2.0, 0, 2), (2.0, 0, 8), (2.0, 1, 9)]


def test_expressions_see_shown_values_beside_the_rest():
    seen = read(hit(shown={"hidden": {"shape": [4, 192]}}, rank=2), MARKER).hits[0].plain()
    assert seen["hidden"]["shape"][-1] == 192 and seen["rank"] == 2 and seen["pid"] == 7


def test_a_record_of_the_wrong_shape_is_torn_not_a_traceback():
    data = line(kind="hit") + line(kind="new") + line(kind="hit", probe="a") + head(MARKER).encode() + b"}\n"
    assert read(data, MARKER).torn == 4
