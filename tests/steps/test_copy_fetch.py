"""copy and fetch: whole files, checked by their hash, never half of one."""

import hashlib
import os

import pytest

from runbook.model.units import Size
from runbook.steps.copy import Copy
from runbook.steps.fetch import Fetch
from tests.support.context import LocalContext


@pytest.fixture
def ctx(local_host, tmp_path):
    return LocalContext(local_host, tmp_path / "run", box_s=30)


def test_a_file_arrives_with_its_bytes_and_mode(ctx, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(100_000))
    source.chmod(0o750)
    result = ctx.do(Copy(from_=str(source), to=str(target)))
    assert result.verdict == "passed" and result.fields["changed"] is True
    assert target.read_bytes() == source.read_bytes() and target.stat().st_mode & 0o777 == 0o750


def test_an_equal_file_is_not_written_again(ctx, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("same")
    target.write_text("same")
    before = target.stat().st_mtime_ns
    assert ctx.do(Copy(from_=str(source), to=str(target))).fields["changed"] is False
    assert target.stat().st_mtime_ns == before


@pytest.mark.parametrize("check", [False, True])
def test_with_diff_the_change_of_a_text_is_told(ctx, tmp_path, check):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("one\ntwo")
    target.write_text("one\n2\n")
    ctx.diff, ctx.check_mode = True, check
    diff = ctx.do(Copy(from_=str(source), to=str(target))).fields["diff"]
    assert diff.splitlines()[3:] == [" one", "-2", "+two", "\\ No newline at end of file"]
    assert (target.read_text() == "one\n2\n") is check
    source.write_bytes(b"\xff\x00")
    assert ctx.do(Copy(from_=str(source), to=str(tmp_path / "c"))).fields["diff"] == "", "what is no text has no lines"


def test_a_file_over_the_limit_is_refused(ctx, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 2000)
    result = ctx.do(Copy(from_=str(tmp_path / "a"), to=str(tmp_path / "b"), max=Size(1000)))
    assert result.verdict == "failed" and "max" in result.reason and not (tmp_path / "b").exists()


def test_a_missing_local_file_is_named(ctx, tmp_path):
    result = ctx.do(Copy(from_=str(tmp_path / "none"), to=str(tmp_path / "b")))
    assert result.verdict == "failed" and "none" in result.reason


def test_a_fetched_file_has_the_hosts_bytes(ctx, tmp_path):
    data = os.urandom(9_000_000)
    (tmp_path / "big.bin").write_bytes(data)
    result = ctx.do(Fetch(path=str(tmp_path / "big.bin")))
    (row,) = result.fields["files"]
    saved = (tmp_path / "run" / row["file"]).read_bytes()
    assert saved == data and row["sha256"] == hashlib.sha256(data).hexdigest() and row["cut"] is False


def test_a_tail_is_a_tail(ctx, tmp_path):
    (tmp_path / "log").write_text("".join(f"line {n}\n" for n in range(1000)))
    result = ctx.do(Fetch(path=str(tmp_path / "log"), tail=Size(18)))
    (row,) = result.fields["files"]
    assert (tmp_path / "run" / row["file"]).read_text() == "line 998\nline 999\n" and row["cut"] is True


def test_a_pattern_fetches_all_it_matches_and_one_that_matches_nothing_fails(ctx, tmp_path):
    for name in ("t-1", "t-2"):
        (tmp_path / name).write_text(name)
    assert len(ctx.do(Fetch(path=str(tmp_path / "t-*"))).fields["files"]) == 2
    result = ctx.do(Fetch(path=str(tmp_path / "nothing-*")))
    assert result.verdict == "failed" and "matches no file" in result.reason


def test_a_file_over_the_limit_is_named_with_the_way_out(ctx, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5000)
    result = ctx.do(Fetch(path=str(tmp_path / "big"), max=Size(1000)))
    assert result.verdict == "failed" and "tail" in result.reason


def test_a_pipe_is_not_waited_for(ctx, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = ctx.do(Copy(from_=str(tmp_path / "pipe"), to=str(tmp_path / "b")))
    assert result.verdict == "failed" and "no regular file" in result.reason
