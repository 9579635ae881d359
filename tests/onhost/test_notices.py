"""Leases between two accounts, or two state folders, of one host: seen, honoured, believed of their owner, gone with who held them."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from keeper_kit import Site, until

from runbook.hosts.base import RemoteError
from runbook.hosts.local import connect_local
from runbook.onhost import lease, notices, procs
from runbook.onhost.errors import OpError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another account")
OTHER = 65534
HOLDER = """
import os, sys
from types import SimpleNamespace
from runbook.onhost import lease
os.setgid(65534), os.setuid(65534)
ctx = SimpleNamespace(state_dir=sys.argv[1], scope=None, protect=[])
lease.lease_take(ctx, {"run": "theirs", "holder": "eve@laptop", "hold_s": 600.0, "gpus": [0]}, b"")
print("has", flush=True)
sys.stdin.readline()
lease.give_back_ours()
"""


@pytest.fixture
def common(tmp_path, monkeypatch):
    """A folder as /tmp is, in a place that every account may enter."""
    folder = Path("/tmp") / f"rbn{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv(notices.VARIABLE, str(folder))
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def others(common):
    """Another account that has GPU 0: a process that says so, and gives it back at a line."""
    state = common / "state"
    state.mkdir()
    os.chown(state, OTHER, OTHER)
    argv = [sys.executable, "-c", HOLDER, str(state)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "has\n"
    yield child
    child.kill()
    child.communicate()


def files(common):
    return list(common.glob(f"{notices.PREFIX}*"))


def test_a_lease_of_another_account_is_in_the_way_and_told_and_after_it_nothing_stays(others, common, local_host):
    local_host.gpu_indices = [0, 1]
    with pytest.raises(RemoteError) as refused:
        local_host.take_lease("mine", "me@laptop", 60.0)
    told = refused.value.data["lease"]
    assert (refused.value.code, told["run"], told["holder"], told["gpus"], told["stale"]) == ("busy", "theirs", "eve@laptop", [0], "")
    assert told["account"] and f"(account {told['account']})" in refused.value.summary
    assert [row.account for row in local_host.leases()] == [told["account"]]
    [file] = files(common)
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (OTHER, 0o644)
    local_host.gpu_indices = [1]
    assert local_host.take_lease("mine", "me@laptop", 60.0) == ()
    assert len(files(common)) == 2
    others.communicate("\n")
    local_host.gpu_indices = [0]
    assert local_host.take_lease("mine", "me@laptop", 60.0) == ()
    local_host.close()
    assert files(common) == [], "each took its own away"


def test_a_holder_that_was_killed_holds_nothing_and_is_told(others, common, local_host):
    others.kill()
    others.wait()
    [taken] = local_host.take_lease("mine", "me@laptop", 60.0)
    assert (taken.run, taken.stale) == ("theirs", "its connection and its keeper are gone")
    assert len(files(common)) == 2, "what is another account's is left to it"


def test_who_cannot_be_seen_counts_until_its_time_is_over(others, common, tmp_path, monkeypatch):
    """Its processes are in another namespace, or hidden: only the file's time tells."""
    others.kill()
    others.wait()
    monkeypatch.setattr(notices, "namespace", lambda: "pid:[1]")
    [told] = lease.leases_elsewhere("/nowhere")
    assert told["stale"] == ""
    [file] = files(common)
    os.utime(file, (time.time() - 700,) * 2)
    assert lease.leases_elsewhere("/nowhere")[0]["stale"] == "nobody renewed it in time"


@pytest.mark.slow
def test_two_state_folders_of_one_account_are_in_each_others_way(common, tmp_path):
    """As with another $XDG_STATE_HOME in one shell: the host and its GPUs are the same."""
    one, other = (connect_local(env={"XDG_STATE_HOME": str(tmp_path / name)}) for name in ("one", "other"))
    one.take_lease("r1", "me@laptop", 600.0)
    one.take_lease("r1", "me@laptop", 600.0)
    with pytest.raises(RemoteError) as refused:
        other.take_lease("r2", "me@laptop", 60.0)
    told = refused.value.data["lease"]
    assert (refused.value.code, told["run"], told["account"]) == ("busy", "r1", "")
    assert [row.run for row in other.leases()] == ["r1"] == [row.run for row in one.leases()]
    assert other.take_lease("r2", "me@laptop", 60.0, reuse=["r1"]) == (), "what it takes over is not in its way"
    other.close()
    os.kill(one.facts.pid, 9)
    until(lambda: one.transport.lost)
    third = connect_local(env={"XDG_STATE_HOME": str(tmp_path / "third")})
    assert [row.stale for row in third.take_lease("r3", "me@laptop", 60.0)] == ["its connection and its keeper are gone"]
    one.close()
    third.close()
    assert files(common) == []


def test_a_folder_of_ones_own_is_for_one_account_and_one_that_others_can_write_is_refused(tmp_path, monkeypatch):
    """As the lab has one: it is a host of its own, whose leases are not those of this machine."""
    monkeypatch.setenv(notices.VARIABLE, str(tmp_path))
    tmp_path.chmod(0o700)
    assert notices.problem() == ""
    tmp_path.chmod(0o777)
    assert "no folder of root with the sticky bit" in notices.problem()


@pytest.mark.slow
def test_a_keeper_goes_on_telling_and_ends_it_with_the_run(common):
    one = connect_local()
    one.take_lease("r1", "me@laptop", 600.0)
    one.ensure_keeper("r1")
    [file] = files(common)
    keeper = json.loads(file.read_text())["keeper"]
    assert procs.is_alive(keeper["pid"], keeper["start"])
    one.close()
    assert files(common) == [file], "its keeper holds it"
    other = connect_local()
    os.utime(file, (1, 1))
    other.renew("r1")
    assert file.stat().st_mtime > time.time() - 60
    other.suspend("r1", time.time() + 300)
    assert abs(json.loads(file.read_text())["expires"] - time.time() - 300) < 5
    assert other.retire("r1") == []
    assert files(common) == []
    other.close()


@pytest.mark.slow
def test_what_was_left_by_the_killed_goes_with_the_next_lease_of_their_account(common):
    one = connect_local()
    one.take_lease("r1", "me@laptop", 600.0)
    os.kill(one.facts.pid, 9)
    until(lambda: one.transport.lost)
    [left] = files(common)
    other = connect_local()
    assert [row.run for row in other.take_lease("r2", "me@laptop", 60.0)] == ["r1"]
    assert left not in files(common) and len(files(common)) == 1
    one.close()
    other.close()


GOOD = {"run": "x", "holder": "h", "gpus": None, "since": 1.0, "hold_s": 60.0, "boot_id": "b", "pids": "", "helper": {"pid": 1, "start": 1}}
HOSTILE = [b"", b"\xff\xfe", b"[" * 4000, b"{}", b"null", *(json.dumps({**GOOD, key: value}).encode() for key, value in [
    ("gpus", ["a"]), ("since", "nan"), ("hold_s", "inf"), ("helper", None), ("helper", {"pid": "x"}), ("gpus", 3)])]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_another_account_wrote_at_will_says_nothing(common, text):
    (common / f"{notices.PREFIX}bad").write_bytes(text)
    assert notices.read_all() == [] == lease.leases_elsewhere("/nowhere")


def test_links_pipes_sockets_and_folders_are_not_read(common, tmp_path):
    (tmp_path / "real").write_text(json.dumps(GOOD))
    (common / f"{notices.PREFIX}link").symlink_to(tmp_path / "real")
    os.mkfifo(common / f"{notices.PREFIX}pipe")
    (common / f"{notices.PREFIX}folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(common / f"{notices.PREFIX}socket"))
        assert notices.read_all() == []


def test_it_is_written_anew_and_never_through_what_lies_there(common, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = common / f"{notices.PREFIX}x"
    place.symlink_to(victim)
    notices.post(str(place), GOOD)
    assert victim.read_text() == "mine" and not place.is_symlink()


@pytest.mark.parametrize("mode, owner", [(0o777, 0), (0o1777, OTHER)])
def test_a_folder_without_the_sticky_bit_or_of_an_account_is_not_used(common, mode, owner, own_state):
    common.chmod(mode)
    os.chown(common, owner, owner)
    assert notices.problem()
    site = Site(own_state)
    lease.lease_take(site.ctx, {"run": "r1", "holder": "me", "hold_s": 60.0}, b"")
    assert files(common) == []
    lease._taken.clear()


def test_a_lock_that_an_account_keeps_is_an_error_in_words(common, own_state, monkeypatch):
    monkeypatch.setattr(notices, "LOCK_S", 0.1)
    with notices.locked(), pytest.raises(OpError, match="stayed locked"):
        lease.lease_take(Site(own_state).ctx, {"run": "r1", "holder": "me", "hold_s": 60.0}, b"")
