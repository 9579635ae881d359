"""Phases of a start, from marks per rank."""

from __future__ import annotations

from runbook.diagnose.lines import log_lines, matcher
from runbook.diagnose.phases import rank_number, table, track
from tests.diagnose.stories import READY, SGLANG, WEIGHTS, Story, shard


def course(story: Story):
    return track(log_lines(story.samples, matcher(SGLANG)))


def test_a_start_is_told_in_phases_with_their_lengths() -> None:
    story = Story().at(0, log=WEIGHTS).at(40, log="[2031-04-02 08:12:00 TP0] Load weight end. type=X\n")
    story.at(50, log="[2031-04-02 08:12:10 TP0] KV Cache is allocated. #tokens: 9\n").at(
        60, log="INFO: Uvicorn running on http://h:1\n"
    ).at(70, log=READY)
    rows = {row["name"]: (row["start"], row["seconds"]) for row in table(course(story), story.samples[0].t)}
    assert rows == {"args": (0, 0), "weights": (0, 40), "kv_cache": (50, 10), "http": (60, 10), "ready": (70, 0)}


def test_ranks_in_one_phase_are_one_row_and_the_slowest_ends_it() -> None:
    both = "".join(f"[2031-04-02 08:11:09 TP{rank}] Load weight begin. avail mem=1 GB\n" for rank in (0, 1))
    story = Story().at(0, log=both).at(5, log="[2031-04-02 08:11:14 TP0] Load weight end.\n")
    assert table(course(story), story.samples[0].t) == [{"name": "weights", "start": 0, "seconds": None, "ranks": ["TP0", "TP1"]}]
    story.at(9, log="[2031-04-02 08:11:18 TP1] Load weight end.\n")
    assert table(course(story), story.samples[0].t)[0]["seconds"] == 9
    assert course(story).last_per_rank() == {"TP0": "weights", "TP1": "weights"}


def test_a_draft_load_is_a_second_row() -> None:
    begin, end = "[2031-04-02 08:11:09 TP0] Load weight begin.\n", "[2031-04-02 08:11:10 TP0] Load weight end.\n"
    story = Story().at(0, log=begin).at(3, log=end).at(4, log=begin).at(6, log=end)
    assert [row["seconds"] for row in table(course(story), story.samples[0].t)] == [3, 2]


def test_a_bar_by_carriage_return_is_read_and_colour_is_no_obstacle() -> None:
    story = Story().at(0, log=WEIGHTS + shard(1)).at(1, log="\x1b[36m" + shard(2))
    assert log_lines(story.samples, matcher(SGLANG))[-1].line.bar[1:] == (2, 22)


def test_a_stretch_of_log_that_is_sent_again_counts_once() -> None:
    story = Story().at(0, log=WEIGHTS)
    story.samples.append(story.samples[0])
    assert len(log_lines(story.samples, matcher(SGLANG))) == 2


def test_a_rank_label_with_one_number_is_a_rank() -> None:
    assert (rank_number("TP3"), rank_number("PP1 TP0"), rank_number("")) == (3, None, None)
