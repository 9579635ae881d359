"""A source counts only as it was when its process began: the file, and each link and folder on the way to it."""

import subprocess
import time

import pytest

from runbook.onhost import source_tree


@pytest.fixture
def release(tmp_path):
    """releases/v1 and v2, and the link `current`, through which the program was started."""
    for name in ("v1", "v2"):
        folder = tmp_path / "releases" / name
        folder.mkdir(parents=True)
        (folder / "app.py").write_text(f"def run():\n    return {name!r}\n")
    (tmp_path / "current").symlink_to("releases/v2")
    (tmp_path / "whole").symlink_to(tmp_path / "current" / ".." / "v2")
    return tmp_path


@pytest.fixture
def program(release):
    """A process that has begun after all of that, a moment ago."""
    time.sleep(0.03)  # start times, and how long the host is up, are told in hundredths
    with subprocess.Popen(["sleep", "60"]) as child:
        time.sleep(0.03)
        yield child.pid
        child.kill()


def point(link, to):
    link.unlink()
    link.symlink_to(to)


def swap(releases):
    (releases / "v2").rename(releases / "old")
    (releases / "v1").rename(releases / "v2")


CHANGES = {
    "nothing": (lambda top: None, True),
    "something is added beside it": (lambda top: (top / "releases" / "v2" / "__pycache__").mkdir(), True),
    "another release is added": (lambda top: (top / "releases" / "v3").mkdir(), True),
    "the link is set to another": (lambda top: point(top / "current", "releases/v1"), False),
    "the link is set anew": (lambda top: point(top / "current", "releases/v2"), False),
    "the folder is another one": (lambda top: swap(top / "releases"), False),
    "the file is written": (lambda top: (top / "releases" / "v2" / "app.py").write_text("x = 1\n"), False),
    "the file is gone": (lambda top: (top / "releases" / "v2" / "app.py").unlink(), False),
}


@pytest.mark.parametrize("path", ["whole/app.py", "releases/v2/app.py"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_may_have_changed_is_not_read(release, program, path, change):
    act, stays = CHANGES[change]
    by_link = "link" in change
    assert source_tree.read(program, str(release / path)) is not None
    act(release)
    found = source_tree.read(program, str(release / path))
    assert (found is not None) is (stays or (by_link and path.startswith("releases")))


def test_what_is_no_file_or_goes_round_is_not_read(release, program):
    (release / "round").symlink_to("round")
    for path in ("round/app.py", "releases/v2", "nowhere.py", "app.py"):
        assert source_tree.read(program, str(release / path)) is None
    assert source_tree.read(program, "current/app.py") is None
