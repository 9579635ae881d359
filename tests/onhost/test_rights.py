"""A server of another user: what everybody may read is read, everything else is blind with what to do about it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from runbook.model.sample import Blind, Sample, Seen
from runbook.onhost import procs

ROOT = Path(__file__).parents[2]
READER = """
import json, os, pwd, sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[3])
from runbook.onhost import procs, sampler  # the interpreter's own files may not be readable to nobody
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
pid = int(sys.argv[1])
args = dict({"pid": pid, "start": procs.start_ticks(pid), "threads": True, "full": True}, **json.loads(sys.argv[2]))
looks = [sampler.sample(SimpleNamespace(state_dir="/nonexistent", scope=None), args, b"")[0] for _ in range(2)]
print(json.dumps(looks))
"""


@pytest.fixture(scope="module")
def looks():
    """Two looks by a stranger: as nobody at a process of ours when we are root, else at init."""
    target = subprocess.Popen(["sleep", "60"])
    pid = target.pid if os.getuid() == 0 else 1
    try:
        answer = subprocess.run(
            [sys.executable, "-c", READER, str(pid), json.dumps({"kernel": True}), str(ROOT)], capture_output=True, text=True, check=True
        )
        return [msgspec.convert(look, Sample) for look in json.loads(answer.stdout)], pid
    finally:
        target.kill()
        target.wait()


@pytest.mark.slow
def test_clocks_and_state_need_no_rights(looks):
    (first, second), pid = looks
    for found in (first, second):
        row = next(process for process in found.processes.value if process.pid == pid)
        assert row.state in "SR" and row.threads[0].run_ns >= 0 and row.faults > 0


def test_what_is_not_permitted_is_blind_with_what_to_do(looks):
    owner = procs.user_name(os.stat("/proc/self").st_uid) if os.getuid() == 0 else "root"
    expected = Blind(f"not permitted: run as the server's user ({owner}) or root")
    for found in looks[0]:
        row = next(process for process in found.processes.value if process.pid == looks[1])
        assert {row.io, row.mapped_weights, row.files, row.pipes} == {expected}
        assert row.stdin == "" and {found.sockets, found.locks} == {expected}


def test_the_disks_are_seen_all_the_same(looks):
    assert all(isinstance(found.disks, Seen) for found in looks[0])


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a /proc that hides processes")
def test_a_server_that_proc_hides_is_blind_and_not_gone():
    target = subprocess.Popen(["sleep", "60"])
    reader = READER.replace("procs.start_ticks(pid)", "5")
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    try:
        argv = ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", reader, str(target.pid), "{}", str(ROOT)]
        answer = subprocess.run(argv, capture_output=True, text=True, check=True)
    finally:
        target.kill()
        target.wait()
    found = msgspec.convert(json.loads(answer.stdout)[0], Sample)
    assert found.processes == found.exit and "hidepid" in found.processes.reason
