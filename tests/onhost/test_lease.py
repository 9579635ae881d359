"""Leases on a host: exact for one account, given back by whatever ends, never in the way of the living or of what is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from keeper_kit import Site, until

from runbook.hosts.base import RemoteError
from runbook.hosts.local import connect_local
from runbook.onhost import lease, procs
from runbook.onhost.runfolder import RunFolder
from tests.support.processes import python

ME = "me@laptop"

ROOT = Path(__file__).parents[2]


def take(host, run, gpus=None, hold_s=600.0):
    host.gpu_indices = gpus
    return host.take_lease(run, ME, hold_s)


@pytest.fixture
def hosts(own_state):
    made = []

    def connect():
        made.append(connect_local())
        return made[-1]

    yield connect
    for host in made:
        host.close()


@pytest.mark.parametrize(
    "ours, theirs, both",
    [
        (None, None, True),
        ([0], None, True),
        (None, [3], True),
        ([0, 1], [1, 2], True),
        ([0, 1], [2], False),
        ([], None, False),
        ([], [0], False),
    ],
)
def test_all_gpus_is_what_nobody_named(ours, theirs, both):
    assert lease.overlap(ours, theirs) is both is lease.overlap(theirs, ours)


def test_two_runs_on_different_gpus_go_side_by_side_and_on_the_same_one_is_told_of_the_other(hosts):
    one, other = hosts(), hosts()
    assert take(one, "r1", [0, 1]) == () == take(other, "r2", [2])
    with pytest.raises(RemoteError) as refused:
        take(other, "r3", [1])
    told = refused.value.data["lease"]
    assert (refused.value.code, told["run"], told["holder"], told["gpus"]) == ("busy", "r1", ME, [0, 1])
    assert abs(told["since"] - told["renewed"]) < 1 and told["until"] > time.time() + 500
    with pytest.raises(RemoteError):
        take(other, "r3", None)
    assert take(one, "r1", [0, 1]) == (), "its own is no other's"
    assert [row.run for row in one.leases()] == ["r1", "r2"]


def test_a_run_that_needs_no_gpu_is_not_in_the_way_of_one_that_has_all(hosts):
    one, other = hosts(), hosts()
    assert take(one, "r1") == () == take(other, "r2", [])


def test_a_lease_can_be_given_back_before_its_connection_ends(hosts):
    one, other = hosts(), hosts()
    take(one, "r1")
    assert one.give_lease_back("r1") and not one.give_lease_back("r1") and one.leases() == ()
    assert take(other, "r2") == ()


def test_the_end_of_the_connection_gives_it_back_and_leaves_no_file(hosts, own_state):
    one = hosts()
    take(one, "r1")
    path = lease.path_of(RunFolder(one.facts.state_dir, "r1"))
    assert os.stat(path).st_mode & 0o777 == 0o600 and os.stat(path).st_uid == os.geteuid()
    one.close()
    assert not os.path.exists(own_state / "runbook-host")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_helper_that_is_ended_holds_nothing(hosts, how):
    one, other = hosts(), hosts()
    take(one, "r1")
    os.kill(one.facts.pid, how)
    until(lambda: one.transport.lost)
    taken = take(other, "r2")
    assert [(row.run, row.stale) for row in taken] == ([("r1", "its connection and its keeper are gone")] if how == signal.SIGKILL else [])
    assert take(other, "r2") == ()


@pytest.mark.slow
def test_with_a_keeper_it_outlives_the_connection_until_the_run_is_retired(hosts):
    one, other = hosts(), hosts()
    take(one, "r1")
    one.ensure_keeper("r1")
    one.close()
    with pytest.raises(RemoteError):
        take(other, "r2")
    [held] = other.leases()
    assert held.keeper and not held.stale
    other.suspend("r1", time.time() + 300)
    assert abs(other.leases()[0].until - time.time() - 300) < 5
    assert other.retire("r1") == []
    assert take(other, "r2") == ()


def test_one_that_nobody_renews_and_one_of_an_earlier_boot_do_not_count(tmp_path):
    site = Site(tmp_path)
    lease.lease_take(site.ctx, {"run": "r1", "holder": ME, "hold_s": 60.0}, b"")
    folder = RunFolder(str(tmp_path), "r1")
    assert lease.leases(str(tmp_path))[0]["stale"] == ""
    os.utime(folder.renewed, (time.time() - 61,) * 2)
    assert lease.leases(str(tmp_path))[0]["stale"] == "nobody renewed it in time"
    folder.renew()
    record = lease.read_json(lease.path_of(folder))
    lease.write_json(lease.path_of(folder), {**record, "boot_id": "another"})
    assert lease.leases(str(tmp_path))[0]["stale"] == "the host was restarted since"
    lease._taken.clear()


def test_a_renewal_keeps_a_lease_that_has_no_keeper_yet(hosts):
    one = hosts()
    take(one, "r1")
    before = one.leases()[0].renewed
    until(lambda: not one.renew("r1") and one.leases()[0].renewed > before)


@pytest.mark.slow
def test_of_many_that_want_it_at_once_one_has_it(hosts, own_state):
    text = (
        "import sys\nfrom runbook.hosts.local import connect_local\nfrom runbook.hosts.base import RemoteError\nhost = connect_local()\n"
        "print('up', flush=True)\nsys.stdin.readline()\n"
        "try:\n    host.take_lease(sys.argv[1], 'x', 60.0)\n    print('has', flush=True)\nexcept RemoteError:\n    print('not', flush=True)\n"
        "sys.stdin.readline()\nhost.close()\n"
    )
    many = [
        subprocess.Popen([sys.executable, "-c", text, f"r{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(4)
    ]
    for one in many:
        assert one.stdout.readline() == "up\n"
    for one in many:
        one.stdin.write("\n")
        one.stdin.flush()
    assert sorted(one.stdout.readline() for one in many) == ["has\n", "not\n", "not\n", "not\n"]
    for one in many:
        one.communicate("\n")
    assert not os.path.exists(own_state / "runbook-host")


def test_a_lease_file_that_is_a_link_changes_nothing_where_it_leads(tmp_path):
    """The run's folder is ours alone, mode 0700; a link in it was put there by our own account."""
    site, victim = Site(tmp_path / "s"), tmp_path / "victim"
    victim.write_text("mine")
    site.folder.create()
    os.symlink(victim, lease.path_of(site.folder))
    with pytest.raises(Exception, match=r"JSON|format"):
        lease.lease_take(site.ctx, {"run": "r1", "holder": ME, "hold_s": 60.0}, b"")
    assert victim.read_text() == "mine"
    assert procs.boot_id()


def test_every_folder_of_ours_is_private_also_one_that_an_older_version_left_open(tmp_path):
    os.umask(0o022)
    site = Site(tmp_path / "a" / "state")
    site.folder.create()
    made = [tmp_path / "a", tmp_path / "a" / "state", tmp_path / "a" / "state" / "runs", tmp_path / "a" / "state" / "runs" / "r1"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 4
    os.chmod(site.ctx.state_dir, 0o755)
    lease.lease_take(site.ctx, {"run": "r1", "holder": ME, "hold_s": 60.0}, b"")
    lease._taken.clear()
    assert os.stat(site.ctx.state_dir).st_mode & 0o777 == 0o700
    for folder, _, files in os.walk(site.ctx.state_dir):
        assert all(os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0 for name in files), (folder, files)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_a_state_folder_of_somebody_else_is_refused_and_nothing_is_written_there(tmp_path):
    site = Site(tmp_path / "state")
    os.mkdir(site.ctx.state_dir)
    os.chown(site.ctx.state_dir, 65534, 65534)
    with pytest.raises(Exception, match="belongs to uid 65534"):
        lease.lease_take(site.ctx, {"run": "r1", "holder": ME, "hold_s": 60.0}, b"")
    assert os.listdir(site.ctx.state_dir) == []


def test_a_run_that_goes_while_its_lease_is_read_is_not_there(tmp_path):
    """Another process takes and gives back, as fast as it can, while the leases are read."""
    churn = """
import sys
sys.path.insert(0, sys.argv[1])
from runbook.onhost import lease
from runbook.onhost.runfolder import RunFolder
from tests.support.processes import python
print("ready", flush=True)
while True:
    folder = RunFolder(sys.argv[2], "r1")
    folder.create()
    lease._write(folder, {"holder": "x", "hold_s": 60}, None)
    folder.remove()
"""
    with python(churn, str(ROOT), str(tmp_path)):
        seen = [bool(lease.leases(str(tmp_path))) for _ in range(2000)]
        until(lambda: lease.leases(str(tmp_path)))
    assert False in seen, "it was never seen without its lease"
