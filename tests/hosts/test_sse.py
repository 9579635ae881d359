"""Reading server-sent events."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.hosts.sse import SseReader


def read(chunks: list[bytes]) -> list[str]:
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.end()


STREAM = b'id: 7\ndata: {"a": 1}\n\n: ping\n\nevent: x\r\ndata:one\r\ndata: two\r\n\r\ndata\n\rdata: \xc3\xbc\r\rdata: cut off'


def test_events_come_with_their_data_only() -> None:
    assert read([STREAM]) == ['{"a": 1}', "one\ntwo", "", "ü", "cut off"]


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_stream_is_cut_into_chunks_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == read([STREAM])


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    reader = SseReader()
    assert reader.feed(b"data: 1\n") == [] and reader.feed(b"\ndata: 2") == ["1"]
