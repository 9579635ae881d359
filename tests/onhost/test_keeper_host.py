"""Launches, patches and samples as a controller has them: typed calls to a real helper, which may die at any time."""

import hashlib
import os
import sys

import pytest
from keeper_kit import until

from runbook.hosts.base import LaunchSpec, ProcessId, RemoteError
from runbook.hosts.local import connect_local
from runbook.model.sample import Absent, Seen

RUN = "typed-1"


@pytest.fixture
def host(local_host):
    yield local_host
    other = connect_local()
    for launch in other.keeper(RUN).launches if os.path.isdir(os.path.join(other.facts.state_dir, "runs", RUN)) else ():
        if launch.ended is None:
            os.kill(launch.pid, 9)
    until(lambda: other.retire(RUN) == [])
    other.close()


@pytest.mark.slow
def test_a_server_outlives_the_connection_and_its_exit_code_is_read_over_the_next(host, tmp_path):
    gate = tmp_path / "gate"
    text = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(.01)\nraise SystemExit(7)"
    host.ensure_keeper(RUN)
    started = host.launch(LaunchSpec(run=RUN, id="server", argv=(sys.executable, "-c", text)))
    host.close()
    gate.touch()
    again = connect_local()
    try:
        ended = until(lambda: (lambda state: state if state.ended else None)(again.launch_state(RUN, "server")))
        assert (ended.pid, ended.start, ended.exit, ended.signal, ended.stopped_by) == (started.pid, started.start, 7, None, None)
        sample = again.sample({"run": RUN, "server": "server", "pid": started.pid, "start": started.start, "log": {"path": started.log}})
        assert isinstance(sample.exit, Seen) and sample.exit.value.code == 7
        assert isinstance(sample.processes, Absent)
        assert again.keeper(RUN).alive
    finally:
        again.close()


@pytest.mark.slow
def test_a_module_is_found_patched_and_restored(host, tmp_path):
    part = tmp_path / "engine_part.py"
    part.write_bytes(b"a = 1\n")
    was = part.stat()
    found = host.find_module("engine_part", interpreter=sys.executable, cwd=str(tmp_path))
    assert found.path == str(part)
    expect = hashlib.sha256(b"a = 1\n").hexdigest()
    record = host.patch(run=RUN, id="taps", path=found.path, expect_sha256=expect, data=b"a = 2\n", undo_after_s=60)
    assert part.read_bytes() == b"a = 2\n"
    assert host.keeper(RUN).undo == (record,)
    with pytest.raises(RemoteError) as caught:
        host.patch(run="other", id="taps", path=found.path, expect_sha256=record.sha256_after, data=b"", undo_after_s=60)
    assert caught.value.code == "busy"
    host.retire("other")
    [report] = host.restore(RUN)
    assert (report.state, part.read_bytes(), part.stat().st_mtime_ns) == ("restored", b"a = 1\n", was.st_mtime_ns)


@pytest.mark.slow
def test_our_kill_is_on_record(host):
    state = host.launch(LaunchSpec(run=RUN, id="server", shell="sleep 60"))
    host.note_kill(RUN, "server")
    host.kill([ProcessId(state.pid, state.start)], ["TERM 5s", "KILL 5s"])
    assert host.launch_state(RUN, "server").stopped_by == "kill"
