"""What bytes say of a server's own work, and what they do not."""

from __future__ import annotations

import pytest

from runbook.diagnose.byte_progress import byte_motions
from tests.diagnose.stories import Story, listener, process

PAGE = 49_140
"""Bytes of the page of metrics of SGLang 0.5, which its front writes at once."""


@pytest.mark.parametrize(
    ("every", "who", "moves"),
    [(5, listener(100), False), (1, listener(100), True), (5, listener(101), True)],
    ids=["asked now and then", "writes all the time", "does not listen"],
)
def test_what_a_server_writes_for_those_who_ask_is_no_progress(every: int, who, moves: bool) -> None:
    """An exporter asks for its metrics, and so do we, while everything behind it stands."""
    story = Story()
    for second in range(30):
        story.at(second, processes=[process(read=9, wrote=PAGE * (second // every)), process(101, ppid=100, read=0)], listeners=who)
    assert any(motion.signal == "written" for motion in byte_motions(story.samples)) is moves
