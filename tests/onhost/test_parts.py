"""The helper's small parts: capture, ladder, frames, files; and that it runs on an old Python."""

from __future__ import annotations

import ast
import errno
import importlib
import os
import shutil
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.onhost import dispatch, files, frames
from runbook.onhost.capture import Capture
from runbook.onhost.errors import CODES, OpError, from_os_error
from runbook.onhost.ladder import parse_ladder

SOURCES = sorted(Path(dispatch.__file__).parent.glob("*.py"))


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 20))
def test_capture_keeps_head_and_tail_exactly(chunks: list[bytes], keep: int) -> None:
    capture = Capture(keep)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    kept, dropped = capture.result()
    assert dropped == max(0, len(whole) - 5 * keep)
    assert kept == (whole if not dropped else whole[:keep] + (whole[-4 * keep :] if keep else b""))


def test_capture_of_much_output_costs_little_memory() -> None:
    capture = Capture(1000)
    chunk = bytes(65536)
    tracemalloc.start()
    for _ in range(200):
        capture.add(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and capture.result()[1] == 200 * 65536 - 5000


@settings(max_examples=40)
@given(st.lists(st.tuples(st.dictionaries(st.text(), st.text() | st.integers()), st.binary()), max_size=5), st.integers(1, 50))
def test_messages_survive_any_cut(messages: list[tuple[dict[str, object], bytes]], step: int) -> None:
    stream = b"".join(frames.encode(header, blob) for header, blob in messages)
    decoder = frames.Decoder()
    assert [message for at in range(0, len(stream), step) for message in decoder.feed(stream[at : at + step])] == messages


def test_bytes_that_are_no_message_are_told_at_once() -> None:
    with pytest.raises(frames.BrokenFrame):
        list(frames.Decoder().feed(b"HTTP/1.1 400 Bad Request\r\n"))
    with pytest.raises(frames.BrokenFrame):
        list(frames.Decoder().feed(b"\0\0\0\2\0\0\0\0[]"))


def test_rungs_have_a_signal_and_a_wait() -> None:
    assert [(rung.name, rung.wait_s) for rung in parse_ladder(["SIGTERM 1m", "ABRT 200ms", "INT 1m30s", "KILL 1.5s"])] == [
        ("TERM", 60.0),
        ("ABRT", 0.2),
        ("INT", 90.0),
        ("KILL", 1.5),
    ]


@pytest.mark.parametrize("text", ["TERM", "TERM 15", "NOSUCH 1s", "term 1s", "", "DFL 1s", "TERM 1s KILL"])
def test_what_is_no_rung_is_refused(text: str) -> None:
    with pytest.raises(OpError) as raised:
        parse_ladder([text])
    assert raised.value.code == "bad_request"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "not_found"),
        (errno.EACCES, "permission"),
        (errno.EROFS, "permission"),
        (errno.EEXIST, "exists"),
        (errno.ENOSPC, "failed"),
    ],
)
def test_system_errors_have_stable_codes(number: int, code: str) -> None:
    error = from_os_error(OSError(number, os.strerror(number)), "write `/x`")
    assert error.code == code and code in CODES and error.message == f"write `/x`: {os.strerror(number)}"


def test_a_file_that_is_read_only_for_us_is_left_as_it_is() -> None:
    """A rename needs no right on the file itself; the file's own mode is respected all the same. Run as nobody when we are root."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o777)
        path = folder / "engine.py"
        path.write_bytes(b"original")
        path.chmod(0o444)
        child = os.fork()
        if child == 0:
            if os.getuid() == 0:
                os.setresuid(65534, 65534, 65534)
            try:
                files.atomic_write(str(path), b"patched")
            except OpError as error:
                os._exit(7 if error.code == "permission" and "read-only" in error.message else 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert path.read_bytes() == b"original" and [entry.name for entry in folder.iterdir()] == ["engine.py"]
    finally:
        shutil.rmtree(folder)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "is_a_folder").mkdir()
    with pytest.raises(OpError):
        files.atomic_write(str(tmp_path / "is_a_folder"), b"x")
    with pytest.raises(OpError):
        files.atomic_write(str(tmp_path / ("n" * 300)), b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["is_a_folder"]


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_every_module_is_python_3_8_and_stdlib_only(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names


def test_the_table_of_operations_is_what_the_modules_have() -> None:
    """A module is imported only when one of its operations is asked for, so the table has to say what it holds."""
    for module, ops in dispatch.OPS.items():
        assert set(importlib.import_module(f"runbook.onhost.{module}").OPS) == set(ops)
