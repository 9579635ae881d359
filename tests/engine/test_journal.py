"""The journal: nothing that was written is lost, and nothing that was not finished is believed."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engine.journal import EVENTS, Journal, JournalError, load_events, read_events, repair_torn_line
from runbook.engine.redact import Mask
from runbook.model.clock import SystemClock
from runbook.model.event import Found, RunEnded
from runbook.model.verdict import Finding


def note(text):
    return Found(finding=Finding(code="x", text=text))


def journal(folder, secrets=None, first=0):
    return Journal(folder, SystemClock(), Mask(secrets or {}), first=first)


def test_what_was_appended_is_read_back_in_order(tmp_path):
    book = journal(tmp_path)
    for text in ("a", "b", "ü\n\x00"):
        book.append(note(text))
    events = load_events(tmp_path)
    assert [event.finding.text for event in events] == ["a", "b", "ü\n\x00"]
    assert [event.n for event in events] == [0, 1, 2]
    assert all(event.t > 0 for event in events)


def test_a_secret_never_reaches_the_disk_nor_a_follower(tmp_path):
    book = journal(tmp_path, {"S": "hunter2hunter2"})
    seen = []
    book.follow(seen.append)
    book.append(note("pass hunter2hunter2"))
    assert b"hunter2hunter2" not in (tmp_path / EVENTS).read_bytes()
    assert seen[0].finding.text == "pass ***S***"


@given(st.integers(1, 200))
def test_a_torn_last_line_is_left_out(cut):
    lines = b"".join(_line(index) for index in range(3))
    torn = lines + _line(3)[: min(cut, len(_line(3)) - 1)]
    assert [event.n for event in read_events(torn)] == [0, 1, 2]


def _line(index):
    return b'{"event":"run_ended","t":1.0,"n":%d,"verdict":"passed","exit_code":0,"reason":"r"}\n' % index


def test_a_broken_line_in_the_middle_is_named():
    with pytest.raises(JournalError, match="line 2"):
        read_events(_line(0) + b"garbage\n" + _line(2))


@pytest.mark.parametrize("moved", [False, True])
def test_a_journal_that_was_removed_or_moved_is_written_anew_whole_and_says_so(tmp_path, moved):
    folder = tmp_path / "run"
    book = journal(folder)
    book.append(note("before"))
    if moved:
        folder.rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(folder)
    book.append(note("after"))
    book.append(note("end"))
    events = load_events(folder)
    assert [event.finding.code for event in events] == ["x", "folder_removed", "x", "x"]
    assert [event.n for event in events] == [0, 1, 2, 3] and events[0].finding.text == "before"


def test_a_journal_whose_place_is_taken_says_what_is_in_the_way(tmp_path):
    book = journal(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("x")
    with pytest.raises(JournalError, match=r"Not a directory$"):
        book.append(note("after"))


def test_appending_after_a_torn_line_starts_a_fresh_one(tmp_path):
    journal(tmp_path).append(note("a"))
    with open(tmp_path / EVENTS, "ab") as file:
        file.write(b'{"event":"fin')
    repair_torn_line(tmp_path)
    journal(tmp_path, first=1).append(note("b"))
    assert [event.finding.text for event in load_events(tmp_path)] == ["a", "b"]


def test_a_full_disk_is_an_error_with_its_reason_and_cleanup_can_go_on(tmp_path):
    (tmp_path / EVENTS).symlink_to("/dev/full")
    book = journal(tmp_path)
    with pytest.raises(JournalError, match="No space left"):
        book.append(note("a"))
    book.give_up()
    seen = []
    book.follow(seen.append)
    book.append(RunEnded(verdict="error", exit_code=70, reason="x"))
    assert seen[0].verdict == "error"


def test_the_journal_is_readable_by_its_owner_only(tmp_path):
    journal(tmp_path).append(note("a"))
    assert (tmp_path / EVENTS).stat().st_mode & 0o077 == 0
