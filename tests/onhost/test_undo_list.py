"""What is still patched on a host, over all runs: for whoever comes to give it back."""

import hashlib
import os
import signal
import time

import pytest
from keeper_kit import Site, until

from runbook.hosts.local import connect_local
from runbook.onhost import patches

BEFORE, AFTER = b"a = 1\n", b"a = 2\n"


@pytest.fixture
def sites(tmp_path):
    found = [Site(tmp_path / "state", run) for run in ("r1", "r2")]
    yield found
    for site in found:
        site.close()


def patch(site, path, id="taps"):
    path.write_bytes(BEFORE)
    return site.op("patch", AFTER, id=id, path=str(path), expect_sha256=hashlib.sha256(BEFORE).hexdigest(), undo_after_s=60.0)


@pytest.mark.slow
def test_open_patches_of_all_runs_are_listed_with_what_their_files_hold(sites, tmp_path):
    first, second = sites
    for site, name in ((first, "a.py"), (first, "b.py"), (second, "c.py"), (second, "d.py")):
        patch(site, tmp_path / name, id=name[0])
    (tmp_path / "b.py").write_bytes(b"theirs\n")
    (tmp_path / "c.py").unlink()
    second.op("restore", ids=["d"])
    found = second.op("undo_list", run=None)
    assert [(item["run"], item["id"], item["state"]) for item in found] == [
        ("r1", "a", "patched"),
        ("r1", "b", "edited"),
        ("r2", "c", "missing"),
    ]
    assert all(item["keeper"] and 0 <= time.time() - item["patched"] < 60 for item in found)
    assert [item["id"] for item in second.op("undo_list")] == ["c"]


@pytest.mark.slow
def test_the_next_connection_hears_of_patches_whose_keeper_is_gone(local_host, tmp_path):
    """After a reboot nobody is left who would undo them."""
    sites = [Site(local_host.facts.state_dir, run) for run in ("dead", "alive")]
    try:
        for site, name in zip(sites, ("a.py", "b.py"), strict=True):
            patch(site, tmp_path / name)
        os.kill(sites[0].keeper()["pid"], signal.SIGKILL)
        until(lambda: sites[0].keeper() is None)
        other = connect_local()
        assert other.facts.abandoned == ({"run": "dead", "id": "taps", "path": str(tmp_path / "a.py")},)
        assert [(item.run, item.keeper) for item in other.open_patches()] == [("dead", False), ("alive", True)]
        other.restore("dead")
        other.close()
        assert local_host.facts.abandoned == ()
        again = connect_local()
        assert again.facts.abandoned == ()
        again.close()
    finally:
        for site in sites:
            patches.restore(site.ctx.state_dir, site.run)
            site.close()
