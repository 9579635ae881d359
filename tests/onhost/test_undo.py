"""A patched file can always be given back, byte for byte, whatever dies in between."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from runbook.onhost import patches
from runbook.onhost.errors import OpError

BEFORE = b"VALUE = 1\n"
AFTER = b"VALUE = 2\n"  # the same size: only the time tells the bytecode of one from the other
OLD_NS = 1_600_000_000_123_456_789


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "site" / "engine_part.py"
    path.parent.mkdir()
    path.write_bytes(BEFORE)
    path.chmod(0o640)
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return path


def patch(state, path, run="r1", id="taps", before=BEFORE, after=AFTER, undo_after_s=7200.0, announce=None):
    return patches.patch(state, run, id, str(path), sha(before), after, undo_after_s, announce)


def look(path):
    status = os.stat(path)
    return Path(path).read_bytes(), status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


def refused(code, call, *args, **kwargs):
    with pytest.raises(OpError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code
    return caught.value


def import_value(folder):
    return int(
        subprocess.run(
            [sys.executable, "-c", "import engine_part; print(engine_part.VALUE)"], cwd=folder, capture_output=True, check=True
        ).stdout
    )


def test_restore_gives_back_bytes_mode_owner_and_time(state, source):
    was = look(source)
    record = patch(state, source)
    assert source.read_bytes() == AFTER
    assert (source.stat().st_mode & 0o777, record["mode"]) == (0o640, 0o640)
    [report] = patches.restore(state, "r1")
    assert report["state"] == "restored"
    assert look(source) == was
    assert patches.restore(state, "r1")[0]["state"] == "already"
    assert patches.open_records(state, "r1") == []


@pytest.mark.slow
def test_patched_and_restored_code_is_what_runs(state, source):
    """Equal size and a fresh .pyc: without care an interpreter would run the bytecode of the other version."""
    assert import_value(source.parent) == 1
    os.utime(source)
    assert import_value(source.parent) == 1
    patch(state, source)
    assert import_value(source.parent) == 2
    patches.restore(state, "r1")
    assert import_value(source.parent) == 1


def test_unchecked_bytecode_does_not_hide_a_patch(state, source):
    import py_compile

    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    patch(state, source)
    assert import_value(source.parent) == 2


def test_the_record_is_on_disk_before_the_file_changes(state, source):
    seen = []

    def announce():
        [record] = patches.open_records(state, "r1")
        seen.append((source.read_bytes(), Path(record["folder"], "original").read_bytes()))

    patch(state, source, announce=announce)
    assert seen == [(BEFORE, BEFORE)]


def test_a_file_that_changed_since_it_was_read_is_left_alone(state, source):
    was = look(source)
    error = refused("changed", patch, state, source, before=b"something else")
    assert error.data["sha256_now"] == sha(BEFORE)
    assert look(source) == was
    assert patches.records(state) == []


def test_another_runs_open_patch_is_refused_by_name(state, source):
    patch(state, source, run="first")
    error = refused("busy", patch, state, source, run="second", before=AFTER)
    assert "first" in str(error)
    patches.restore(state, "first")
    patch(state, source, run="second")
    assert source.read_bytes() == AFTER


def test_a_symlink_is_resolved_and_stays_a_symlink(state, source, tmp_path):
    link = tmp_path / "link.py"
    link.symlink_to(source)
    record = patch(state, link)
    assert record["path"] == str(source)
    assert link.is_symlink()
    assert source.read_bytes() == AFTER
    refused("busy", patch, state, link, run="second", before=AFTER)
    patches.restore(state, "r1")
    assert link.read_bytes() == BEFORE


def test_other_names_of_a_file_never_see_the_patch_and_are_one_file_with_it_again(state, source, tmp_path):
    """Package managers link one file into many environments: those must not get the probe, nor lose the link."""
    other = tmp_path / "cache.py"
    os.link(source, other)
    was = look(source)
    patch(state, source)
    assert (source.read_bytes(), other.read_bytes()) == (AFTER, BEFORE)
    assert patches.restore(state, "r1")[0]["state"] == "restored"
    assert os.path.samefile(source, other)
    assert look(source) == was
    assert os.listdir(source.parent) == [source.name]


def test_another_name_that_was_written_to_meanwhile_is_not_linked_again(state, source, tmp_path):
    other = tmp_path / "cache.py"
    os.link(source, other)
    patch(state, source)
    other.write_bytes(b"theirs\n")
    patches.restore(state, "r1")
    assert (source.read_bytes(), other.read_bytes()) == (BEFORE, b"theirs\n")
    assert os.listdir(source.parent) == [source.name]


def test_a_patch_that_nobody_would_time_is_not_made(state, source):
    was = look(source)

    def no_keeper():
        raise OpError("failed", "the keeper does not answer")

    refused("failed", patch, state, source, announce=no_keeper)
    assert look(source) == was
    assert patches.records(state) == []


def test_a_read_only_file_is_refused_before_anything_is_written(state, source):
    source.chmod(0o444)
    was = look(source)
    error = refused("permission", patch, state, source)
    assert "read-only" in str(error)
    assert error.hint
    assert look(source) == was
    assert patches.records(state) == []
    assert os.listdir(source.parent) == [source.name]


def test_no_file_or_no_regular_file_is_said_as_such(state, tmp_path):
    refused("not_found", patch, state, tmp_path / "absent.py")
    refused("unsupported", patch, state, tmp_path)


def test_a_third_partys_edit_is_never_overwritten(state, source):
    record = patch(state, source)
    source.write_bytes(b"theirs\n")
    [report] = patches.restore(state, "r1")
    assert report["state"] == "conflict"
    assert source.read_bytes() == b"theirs\n"
    assert all(part in report["note"] for part in (sha(b"theirs\n"), sha(AFTER), sha(BEFORE)))
    assert [found["id"] for found in patches.open_records(state, "r1")] == ["taps"]
    assert Path(record["folder"], "original").read_bytes() == BEFORE


def test_what_somebody_added_to_a_patched_file_can_be_kept_without_the_patch(state, tmp_path):
    """The three sides of a merge are there: what the file holds now, the patched bytes, the original."""
    source = tmp_path / "part.py"
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    before, after, now = lines, [*lines[:10], "PROBE\n", *lines[10:]], [*lines[:10], "PROBE\n", *lines[10:], "theirs = 1\n"]
    source.write_text("".join(before))
    patch(state, source, before=source.read_bytes(), after="".join(after).encode())
    source.write_text("".join(now))
    assert patches.restore(state, "r1")[0]["state"] == "conflict"
    [record] = patches.open_records(state, "r1")
    text = Path(record["folder"], "HOW_TO_RESTORE.txt").read_text()
    command = next(line.strip() for line in text.splitlines() if "diff3" in line)
    merged = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert merged == "".join([*before, "theirs = 1\n"])


def test_a_deleted_file_is_put_back_with_mode_owner_and_time(state, source):
    was = look(source)
    patch(state, source, id="one")
    patch(state, source, id="two", before=AFTER, after=b"VALUE = 3\n")
    source.unlink()
    reports = patches.restore(state, "r1")
    assert [(item["id"], item["state"]) for item in reports] == [("two", "restored"), ("one", "restored")]
    assert "had been deleted" in reports[0]["note"]
    assert look(source) == was
    assert (os.listdir(source.parent), patches.open_records(state, "r1")) == ([source.name], [])


def test_a_deleted_file_with_another_name_is_one_file_with_it_again(state, source, tmp_path):
    other = tmp_path / "site" / "other.py"
    os.link(source, other)
    patch(state, source)
    source.unlink()
    assert patches.restore(state, "r1")[0]["state"] == "restored"
    assert os.path.samefile(source, other)
    assert sorted(os.listdir(source.parent)) == sorted([source.name, other.name])


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_the_patch_of_a_file_whose_folder_is_away_stays_on_record_until_it_is_back_or_given_up(state, source, how):
    """A moved folder carries the patch along, and cannot be told from one that was removed."""
    patch(state, source, id="one")
    patch(state, source, id="two", before=AFTER, after=b"VALUE = 3\n")
    away = source.parent.rename(source.parent.with_name("elsewhere"))
    reports = patches.restore(state, "r1")
    assert [item["state"] for item in reports] == ["missing", "missing"]
    assert all(f"runbook restore r1 --forget {source}" in item["note"] for item in reports)
    assert len(patches.open_records(state, "r1")) == 2 and not source.parent.exists()
    if how == "moved":
        away.rename(source.parent)
        assert [item["state"] for item in patches.restore(state, "r1")] == ["restored", "restored"]
        assert source.read_bytes() == BEFORE
    else:
        shutil.rmtree(away)
        assert [item["state"] for item in patches.restore(state, "r1", ["two", "one"], forget=True)] == ["gone", "gone"]
        assert not source.parent.exists()
    assert patches.open_records(state, "r1") == []


def test_giving_up_closes_the_record_of_an_edited_file_and_restores_what_can_be_restored(state, source):
    patch(state, source)
    source.write_bytes(b"VALUE = 9\n")
    assert patches.restore(state, "r1")[0]["state"] == "conflict"
    assert patches.restore(state, "r1", forget=True)[0]["state"] == "gone"
    assert source.read_bytes() == b"VALUE = 9\n" and patches.open_records(state, "r1") == []
    patch(state, source, id="again", before=b"VALUE = 9\n")
    assert patches.restore(state, "r1", ["again"], forget=True)[0]["state"] == "restored"
    assert source.read_bytes() == b"VALUE = 9\n"


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_file_on_a_disk_that_is_not_mounted_now_is_neither_made_nor_given_up(state, source, folder_too):
    """Its folder is then an empty one of another file system; here the record says that it was on another."""
    record = patch(state, source)
    path = Path(record["folder"], "record.json")
    path.write_text(path.read_text().replace(f'"device": {source.stat().st_dev}', '"device": -1'))
    source.unlink()
    if folder_too:
        source.parent.rmdir()
    [report] = patches.restore(state, "r1")
    assert report["state"] == "missing" and "mounted" in report["note"] and record["folder"] in report["note"]
    assert not source.exists() and len(patches.open_records(state, "r1")) == 1


def test_a_link_in_the_place_of_a_patched_file_is_left_alone_and_told(state, source, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_bytes(BEFORE)
    patch(state, source)
    source.unlink()
    source.symlink_to(elsewhere)
    [report] = patches.restore(state, "r1")
    assert report["state"] == "conflict" and f"symbolic link, to {elsewhere}" in report["note"]
    assert source.is_symlink() and elsewhere.read_bytes() == BEFORE


def test_patches_of_one_file_come_off_in_reverse(state, source):
    was = look(source)
    patch(state, source, id="one")
    patch(state, source, id="two", before=AFTER, after=b"VALUE = 3\n")
    [report] = patches.restore(state, "r1", ["one"])
    assert (report["state"], "two" in report["note"]) == ("conflict", True)
    reports = patches.restore(state, "r1")
    assert [(item["id"], item["state"]) for item in reports] == [("two", "restored"), ("one", "restored")]
    assert look(source) == was


def test_one_conflict_does_not_keep_the_others_from_being_restored(state, source, tmp_path):
    other = tmp_path / "site" / "other.py"
    other.write_bytes(BEFORE)
    patch(state, other, id="first")
    patch(state, source, id="second")
    source.write_bytes(b"theirs\n")
    assert {item["id"]: item["state"] for item in patches.restore(state, "r1")} == {"first": "restored", "second": "conflict"}
    assert other.read_bytes() == BEFORE


def test_an_id_is_free_again_after_its_restore(state, source):
    patch(state, source)
    refused("exists", patch, state, source, before=AFTER)
    patches.restore(state, "r1")
    patch(state, source)
    assert patches.restore(state, "r1", ["taps"])[0]["state"] == "restored"


def test_what_was_never_patched_restores_without_complaint(state):
    assert patches.restore(state, "never") == []
    assert patches.restore(state, "never", ["taps"])[0]["state"] == "already"


def test_the_text_beside_the_record_restores_by_hand(state, source):
    was = look(source)
    record = patch(state, source)
    text = Path(record["folder"], "HOW_TO_RESTORE.txt").read_text()
    commands = text.partition("Restore it:")[2].partition("Then remove")[0]
    subprocess.run(["sh", "-eu", "-c", commands], check=True)
    assert look(source) == was
    assert patches.restore(state, "r1")[0]["state"] == "already"


@pytest.mark.parametrize("run", ["../up", "", "a/b", ".hidden", "x" * 200])
def test_a_run_id_never_leaves_the_state_folder(state, source, run):
    refused("bad_request", patch, state, source, run=run)


def killed_at(step, work) -> bool:
    """Run `work` in a child that is killed at its n-th file operation; whether it got that far."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def count(event, _args):
            if event == "open" or event.startswith("os."):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("linked", [False, True], ids=["one name", "two names"])
@pytest.mark.parametrize("act", ["patch", "restore"])
def test_killed_at_any_file_operation_the_original_comes_back(act, linked, tmp_path):
    """Each step of the way: patched or original bytes, never a part; then restore gives everything back and leaves nothing."""
    source = tmp_path / "part.py"
    source.write_bytes(BEFORE)
    os.utime(source, ns=(OLD_NS, OLD_NS))
    if linked:
        os.link(source, tmp_path / "other.py")
    was, step, states = look(source), 0, set()
    while True:
        step += 1
        state, run = str(tmp_path / "state" / str(step)), "r1"
        if act == "restore":
            patch(state, source, run=run)
        work = partial(patch, state, source, run=run) if act == "patch" else partial(patches.restore, state, run)
        if not killed_at(step, work):
            break
        states.add(source.read_bytes())
        assert source.read_bytes() in (BEFORE, AFTER), step
        patches.restore(state, run)
        assert look(source) == was, step
        assert patches.open_records(state, run) == []
        assert set(os.listdir(tmp_path)) <= {"part.py", "other.py", "state"}, step
        assert not linked or os.path.samefile(source, tmp_path / "other.py"), step
    assert step > 8
    assert states == {BEFORE, AFTER}


def test_of_two_runs_that_begin_at_once_the_loser_hears_of_the_other(state, source):
    """It read the file before the other wrote: not somebody who edits, but that run."""
    patch(state, source, run="first")
    assert "run first" in str(refused("busy", patch, state, source, run="second", before=BEFORE))
