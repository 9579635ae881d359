"""A log window is exactly the bytes that were asked for, or says which it lacks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.onhost.log_window import find_window
from runbook.onhost.ops_log import MOST_LINE, Search, lines_of, split_lines


def split(chunks: list[bytes], offset: int = 0) -> list[tuple[int, bytes]]:
    return list(split_lines(iter(chunks), offset))


def test_progress_bars_and_windows_line_ends_are_lines() -> None:
    assert split([b"one\r\ntwo\rthree\n\nfour"]) == [(0, b"one"), (5, b"two"), (9, b"three"), (16, b"four")]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"\x0b", b"\x85", b"\xff"]), max_size=40), st.data())
def test_where_the_chunks_end_changes_nothing(pieces: list[bytes], data: st.DataObject) -> None:
    text = b"".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    chunks = [chunk for chunk in (text[:cut], text[cut:]) if chunk]
    lines = split(chunks, 100)
    assert [line for _, line in lines] == [line for line in re.split(rb"[\r\n]", text) if line]
    assert all(text[offset - 100 :].startswith(line) for offset, line in lines)


def test_a_line_without_end_is_searched_in_bounded_memory() -> None:
    chunk = b"x" * (1 << 20)
    lines = split([chunk, chunk, chunk + b"\nshort\n"])
    assert lines == [(0, b"x" * MOST_LINE), (3 * len(chunk) + 1, b"short")]


def search(pattern: str, lines: list[str], **options: Any) -> Search:
    found = Search(re.compile(pattern), None, options.get("context", 0), options.get("most", 100))
    for number, line in enumerate(lines):
        found.take(number, line.encode())
    return found


def test_overlapping_neighbours_are_given_to_each_match() -> None:
    found = search("hit", ["a", "hit 1", "hit 2", "b", "c", "d"], context=2)
    assert [(match["before"], match["after"]) for match in found.matches] == [(["a"], ["hit 2", "b"]), (["a", "hit 1"], ["b", "c"])]


def test_all_matches_are_counted_and_the_first_ones_kept() -> None:
    found = search("hit", ["hit"] * 50, most=3)
    assert found.count == 50 and [match["offset"] for match in found.matches] == [0, 1, 2]


class Log:
    """A log that is written and rotated as logging libraries and logrotate do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *lines: str) -> None:
        with self.path.open("a") as log:
            log.writelines(line + "\n" for line in lines)

    def mark(self) -> list[int]:
        try:
            info = self.path.stat()
        except FileNotFoundError:
            return [0, 0]
        return [info.st_ino, info.st_size]

    def rename(self, to: str) -> None:
        self.path.rename(self.path.with_name(self.path.name + to))

    def lines(self, begin: list[int] | None, end: list[int] | None = None) -> tuple[list[str], str]:
        window = find_window(str(self.path), begin, end)
        return [line.decode() for segment in window.segments for _, line in lines_of(segment)], window.gap


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "server.log")


def test_without_a_mark_the_window_is_the_whole_file(log: Log) -> None:
    log.add("a", "b")
    assert log.lines(None) == (["a", "b"], "")


def test_a_log_that_did_not_exist_at_the_mark_is_read_from_its_start(log: Log) -> None:
    begin = log.mark()
    assert begin == [0, 0] and log.lines(begin) == ([], "")
    log.add("a")
    assert log.lines(begin) == (["a"], "") and log.lines(begin, end=begin) == ([], "")


def test_a_renamed_log_is_followed_by_its_inode(log: Log) -> None:
    log.add("before")
    begin = log.mark()
    log.add("a")
    log.rename(".1")
    log.add("b")
    assert log.lines(begin) == (["a", "b"], "")


def test_two_rotations_inside_the_window_leave_out_nothing(log: Log) -> None:
    log.add("before")
    begin = log.mark()
    log.add("a")
    log.rename("-20250101")
    os.utime(log.path.with_name("server.log-20250101"), (1000, 1000))
    log.add("b")
    log.rename("-20250102")
    log.add("c")
    end = log.mark()
    log.add("after")
    log.path.with_name("server.log.json").write_text("not a part of it\n")
    assert log.lines(begin, end) == (["a", "b", "c"], "")


def test_a_window_that_ended_before_the_rotation_stays_in_the_old_file(log: Log) -> None:
    begin = log.mark()
    log.add("a")
    end = log.mark()
    log.rename(".1")
    log.add("b")
    assert log.lines([end[0], 0], end) == (["a"], "") and begin == [0, 0]


def test_a_rotated_file_that_is_gone_is_a_gap(log: Log) -> None:
    log.add("before")
    begin = log.mark()
    held = log.path.open()  # keeps the inode number from being given to the new file
    log.path.unlink()
    log.add("b")
    lines, gap = log.lines(begin)
    held.close()
    assert lines == ["b"] and "is gone: rotated away" in gap


def test_a_log_that_was_truncated_in_place_is_a_gap(log: Log) -> None:
    log.add("before", "a long line that will be lost")
    begin = log.mark()
    log.path.write_text("")
    log.add("b")
    lines, gap = log.lines(begin)
    assert lines == ["b"] and "was cut from" in gap
    lines, gap = log.lines([begin[0], 0], begin)
    assert lines == ["b"] and "was cut from" in gap


def test_a_log_that_was_truncated_and_grew_past_the_mark_again_is_a_gap(log: Log) -> None:
    log.add("before", "a long line that will be lost")
    begin = log.mark()
    log.path.write_text("")
    log.add("b")
    end = log.mark()
    log.add("after the window, and longer than all that was there before")
    lines, gap = log.lines(begin, end)
    assert lines == ["b"] and "written again inside the window" in gap
