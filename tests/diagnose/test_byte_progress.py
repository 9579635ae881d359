"""What bytes say of a server's own work, and what they do not."""

from __future__ import annotations

import pytest

from runbook.diagnose.byte_progress import byte_motions
from runbook.model.sample import IoSample, Seen
from tests.diagnose.stories import Story, listener, process

PAGE = 49_140
"""Bytes of the page of metrics of SGLang 0.5, which its front writes at once."""


@pytest.mark.parametrize("signal", ["read", "written"])
@pytest.mark.parametrize(
    ("every", "who", "moves"),
    [(5, listener(100), False), (1, listener(100), True), (5, listener(101), True)],
    ids=["asked now and then", "works all the time", "does not listen"],
)
def test_what_a_server_does_for_those_who_ask_is_no_progress(every: int, who, moves: bool, signal: str) -> None:
    """An exporter asks for its metrics, and so do we, while everything behind it stands."""
    story = Story()
    for second in range(30):
        bytes_so_far = PAGE * (second // every)
        moved = IoSample(rchar=bytes_so_far if signal == "read" else 9, read_bytes=0, wchar=bytes_so_far if signal == "written" else 9)
        story.at(second, processes=[process(io=Seen(moved)), process(101, ppid=100, read=0)], listeners=who)
    assert any(motion.signal == signal for motion in byte_motions(story.samples)) is moves


def test_what_comes_from_a_disk_moves_at_once() -> None:
    story = Story()
    for second in range(30):
        moved = IoSample(rchar=PAGE * (second // 5), read_bytes=PAGE * (second // 5), wchar=0)
        story.at(second, processes=[process(io=Seen(moved))], listeners=listener(100))
    assert any(motion.signal == "read" for motion in byte_motions(story.samples))
