"""For which lock file a process waits: read in the objects of its frames."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runbook.diagnose.wait_lexicon import LOCK_FILE
from runbook.hosts.base import Host
from runbook.model.sample import Seen
from runbook.onhost import lock_paths
from runbook.onhost.objects import Memory
from tests.support.processes import python, start_of
from tests.support.waiting import until

OBJECTS = """
import pathlib, sys
class Context:
    def __init__(self, path): self.wait_s, self.lock_file = 1.5, path
class SoftFileLock:
    def __init__(self, path): self._context, self.count = Context(path), 7
class Slots:
    __slots__ = "number", "path"
mine, beside = sys.argv[1:]
lock, many, slots, path = SoftFileLock(mine), SoftFileLock(mine), Slots(), pathlib.Path(mine)
vars(many).update({"k%d" % at: at for at in range(20)})
slots.path, slots.number, both = str(mine), 3, SoftFileLock(mine)
both.other = beside
str(path)
print(*map(id, (lock, many, slots, path, mine, both)), flush=True)
sys.stdin.read()
"""
NAMED = [shutil.which(f"python3.{minor}") for minor in range(8, 14)]
PYTHONS = sorted({sys.executable, *(path for path in NAMED if path and not path.endswith("shims/" + Path(path).name))})
FRAME = "acquire (filelock/_api.py:250)"


def at(address: int, name: str = "self", frame: str = FRAME):
    return {"frames": [frame], "spots": [("/x.py", 1, {name: address})]}


@contextmanager
def objects(program: str, *paths: Path) -> Iterator[tuple[int, list[int]]]:
    words = [program, "-c", OBJECTS, *map(str, paths)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.pid, list(map(int, child.stdout.readline().split()))
        assert child.stdin is not None
        child.stdin.close()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    mine, beside = tmp_path / "mine.lock", tmp_path / "beside.lock"
    mine.touch()
    beside.touch()
    return mine, beside


@pytest.mark.parametrize("program", PYTHONS)
def test_the_path_is_found_in_attributes_slots_and_paths(program: str, files: tuple[Path, Path]) -> None:
    with objects(program, *files) as (pid, found):
        lock, many, slots, path, text, both = found
        memory = Memory(pid)
        kinds = [memory.class_of(one) for one in (lock, path, text)]
        memory.close()
        read = [lock_paths.of(pid, at(one)) for one in (lock, many, slots, path, text)]
        assert [one.path for one in read] == [str(files[0])] * 5 and read[0].kind == "SoftFileLock"
        assert lock_paths.of(pid, at(both)) == ("", ""), "of two nobody knows which"
        assert lock_paths.of(pid, at(text, "path", "acquire_lock_file (build.py:3)")) == (str(files[0]), "")
        files[0].unlink()
        assert lock_paths.of(pid, at(lock)) == ("", "")
    assert kinds == ["SoftFileLock", "PosixPath", "str"]


def test_what_is_no_object_gives_nothing(files: tuple[Path, Path]) -> None:
    with objects(sys.executable, *files) as (pid, found):
        assert [lock_paths.of(pid, at(one)) for one in (0, 8, found[0] + 8, 1 << 46, 1 << 70)] == [("", "")] * 5
    assert lock_paths.of(pid, at(found[0])) == ("", ""), "it is gone"


def test_frames_that_look_for_a_lock_file_are_the_same_for_host_and_judge() -> None:
    assert (lock_paths.FRAME.pattern, lock_paths.FRAME.flags) == (LOCK_FILE.pattern, LOCK_FILE.flags)


WAITS = """
import os, time, sys
def acquire_lock_file(path):
    while os.path.exists(path):
        time.sleep(0.2)
print("ready", flush=True)
acquire_lock_file(sys.argv[1])
"""


@pytest.mark.slow
def test_a_stack_names_the_lock_and_the_next_look_shows_it_though_nobody_watches_its_folder(
    local_host: Host, files: tuple[Path, Path]
) -> None:
    with python(WAITS, str(files[0])) as child:
        target = start_of(child.pid)

        def named() -> str:
            found = local_host.stacks([(target, None)], look=1)
            return next((one.lock_file for one in found.value if one.main), "") if isinstance(found, Seen) else ""

        assert until(named) == str(files[0])
        sample = local_host.sample({"pid": target.pid, "start": target.start, "full": True, "threads": True})
        assert isinstance(sample.locks, Seen) and [lock.path for lock in sample.locks.value] == [str(files[0])]
