"""What is protected, and what a scope hides."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.hosts.base import RemoteError
from runbook.hosts.local import connect_local
from runbook.onhost import procs
from runbook.onhost.listeners import parse_address, parse_tcp_table
from tests.support.processes import is_gone, start_of


@pytest.fixture
def host(tmp_path):
    connected = connect_local(env={"XDG_STATE_HOME": str(tmp_path)})
    yield connected
    connected.close()


@pytest.fixture
def state(host):
    return Path(host.facts.state_dir)


@pytest.fixture
def marked():
    process = subprocess.Popen(["sleep", "30"], env={"RUNBOOK_RUN": "theirs"})
    yield process
    process.kill()
    process.wait()


def keeper_of(state, run, pid, start):
    folder = state / "runs" / run
    folder.mkdir(parents=True)
    (folder / "keeper.json").write_text(json.dumps({"format": 1, "pid": pid, "start": start}))


def protection(host, pid, run=""):
    return next(row.protected for row in host.processes(run=run) if row.pid == pid)


def test_another_runs_process_is_protected_while_that_run_lives(host, state, marked):
    keeper = subprocess.Popen(["sleep", "30"])
    keeper_of(state, "theirs", keeper.pid, start_of(keeper.pid).start)
    assert protection(host, marked.pid, run="mine") == "other_run" and protection(host, marked.pid, run="theirs") is None
    assert protection(host, keeper.pid, run="theirs") == "keeper"
    keeper.kill()
    keeper.wait()
    assert protection(host, marked.pid, run="mine") is None


def test_a_run_without_a_living_keeper_protects_nothing(host, state, marked):
    assert protection(host, marked.pid, run="mine") is None
    keeper_of(state, "theirs", os.getpid(), start_of(os.getpid()).start - 1)  # its pid belongs to someone else now
    (state / "runs" / "broken").mkdir()
    (state / "runs" / "broken" / "keeper.json").write_text("{")
    assert protection(host, marked.pid, run="mine") is None


def test_a_scope_hides_everything_else(marked):
    inside = subprocess.Popen(["sh", "-c", "sleep 30 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    below = int(inside.stdout.readline())
    host = connect_local(env={"RUNBOOK_SCOPE": f"{inside.pid}:{procs.start_ticks(inside.pid)}"})
    try:
        assert host.facts.scoped and [row.pid for row in host.processes()] == [below]
        with pytest.raises(RemoteError) as raised:
            host.kill([start_of(marked.pid)], ["KILL 1s"])
        assert raised.value.code == "protected" and not is_gone(marked.pid)
        target = start_of(below)
        assert host.kill([target], ["KILL 5s"]).gone == (target,) and is_gone(below)
    finally:
        host.close()
        inside.kill()
        inside.wait()


def test_a_listener_outside_of_the_scope_has_no_visible_owner():
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = connect_local(env={"RUNBOOK_SCOPE": f"{os.getpid()}:{procs.start_ticks(os.getpid())}"})
        (found,) = host.listeners(server.getsockname()[1])
        host.close()
    assert (found.pid, found.ours, found.title) == (0, False, "")


def test_addresses_of_the_socket_tables():
    if sys.byteorder == "little":
        assert parse_address("0100007F:1F90") == "127.0.0.1:8080"
        assert parse_address("00000000000000000000000001000000:0050") == "[::1]:80"
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 123 1 x\n"
        "   1: 0100007F:1F90 0100007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 124 1 x\n"
        "   2: 0100007F:8000 0100007F:1F90 0A 00000000:00000000 00:00000000 00000000  1000        0 125 1 x\n"
    )
    assert [found.inode for found in parse_tcp_table(text, 8080)] == [123]
