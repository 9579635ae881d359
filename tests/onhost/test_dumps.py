"""What a launch arms: no core file, and with `dumps: full` a process that lets itself be looked into."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runbook.hosts.base import Host, LaunchSpec, LaunchState, ProcessId
from runbook.hosts.local import connect_local
from runbook.model.sample import Seen
from runbook.onhost import fault_stacks, procs, py_spy
from tests.support.processes import python
from tests.support.waiting import until

IDLE = """
import os, sys, threading, time
started = threading.Event()
def sits_here(): started.set(); time.sleep(60)
threading.Thread(target=sits_here, daemon=True).start()
started.wait()
if len(sys.argv) > 1 and os.fork() == 0: sits_here()
def waits_here(): print(os.environ.get("TORCH_FR_BUFFER_SIZE"), os.environ.get("NCCL_RAS_ADDR"), flush=True); time.sleep(60)
waits_here()
"""


@pytest.fixture
def host() -> Iterator[Host]:
    found = connect_local()
    found.ensure_keeper("r1")
    yield found
    ids = [ProcessId(one.pid, one.start) for one in found.keeper("r1").launches]
    members = [stat for stat in procs.process_table().values() if stat.sid in {one.pid for one in ids}]
    found.kill([ProcessId(stat.pid, stat.start) for stat in members], ["KILL 5s"])
    found.retire("r1")
    found.close()


def launch(host: Host, *args: str, dumps: str = "full", env: dict[str, str] | None = None) -> LaunchState:
    state = host.launch(LaunchSpec(run="r1", id="server", argv=(sys.executable, "-c", IDLE, *args), dumps=dumps, env=env or {}))
    until(lambda: Path(state.log).read_text())
    return state


@pytest.mark.slow
def test_a_launch_makes_no_core_file_unless_dumps_are_off(host: Host) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    state = launch(host, dumps="auto")
    assert resource.prlimit(state.pid, resource.RLIMIT_CORE) == (0, hard) and state.dump_env == {}
    off = host.launch(LaunchSpec(run="r1", id="off", argv=("sleep", "60")))
    assert resource.prlimit(off.pid, resource.RLIMIT_CORE) == (soft, hard)


@pytest.mark.slow
def test_full_adds_recorder_and_ras_and_leaves_what_the_author_set(host: Host) -> None:
    state = launch(host, env={"TORCH_FR_BUFFER_SIZE": "7", "PYTHONPATH": "/mine"})
    size, address = Path(state.log).read_text().split()
    assert size == "7" and address.startswith("localhost:") and "TORCH_FR_BUFFER_SIZE" not in state.dump_env
    assert state.dump_env["PYTHONPATH"].endswith(":/mine") and state.dump_env["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"].endswith(
        "/dumps/server/flight_pipe_"
    )


@pytest.mark.slow
def test_where_py_spy_cannot_read_an_armed_process_prints_its_own_stacks(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A py-spy that is refused stands for a kernel with Yama, which forbids what it does."""
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Permission Denied' >&2; exit 1\n")
    refused.chmod(0o755)
    state = launch(host, "fork")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    other = connect_local()
    try:
        child = until(lambda: [stat for stat in procs.process_table().values() if stat.ppid == state.pid])[0]
        found = other.stacks([(ProcessId(state.pid, state.start), 0), (ProcessId(child.pid, child.start), 1)])
    finally:
        other.close()
    assert isinstance(found, Seen)
    place = {(row.rank, row.main): (row.source, row.frames[0]) for row in found.value}
    assert place[0, True] == ("faulthandler", "waits_here (<string>:8)") and place[0, False] == ("faulthandler", "sits_here (<string>:4)")
    assert place[1, True] == ("faulthandler", "sits_here (<string>:4)"), "a forked child is armed again"
    assert procs.is_alive(state.pid, state.start) and procs.is_alive(child.pid, child.start)


def test_what_is_not_armed_is_never_signalled() -> None:
    """Its default action would end the process."""
    env = {**os.environ, "RUNBOOK_DUMPS": "/tmp"}
    child = subprocess.Popen(["sleep", "60"], env=env)
    try:
        start = procs.start_ticks(child.pid)
        assert start is not None and "not known to be armed" in fault_stacks.dump(child.pid, start, 1.0)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_an_abort_still_prints_the_threads(host: Host) -> None:
    state = launch(host, dumps="auto", env={"PYTHONFAULTHANDLER": "1"})
    os.kill(state.pid, signal.SIGABRT)
    text = until(lambda: (text := Path(state.log).read_text()) and "waits_here" in text and text)
    assert "Fatal Python error: Aborted" in text and "sits_here" in text


@pytest.mark.slow
def test_the_hosts_own_sitecustomize_still_runs(host: Host, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the host has its own', flush=True)\n")
    state = launch(host, env={"PYTHONPATH": str(tmp_path)})
    assert "the host has its own" in Path(state.log).read_text()


def test_both_forms_of_the_printed_text_are_read() -> None:
    text = (
        'Thread 0x00007f0001 [worker] (most recent call first):\n  File "/a/b/c/q.py", line 5 in get\n\n'
        'Current thread 0x00007f0002 (most recent call first):\n  File "<string>", line ??? in main\n'
    )
    main, worker = fault_stacks.threads(text, 7)
    assert main == {"tid": 7, "thread": "", "main": True, "frames": ["main (<string>:0)"]}
    assert worker["thread"] == "worker" and worker["frames"] == ["get (c/q.py:5)"] and not worker["main"]
    assert fault_stacks.threads("", 7) == []


def test_a_py_spy_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    assert "no answer in" in py_spy.dump(str(tool), os.getpid(), 0.2)


@pytest.mark.slow
def test_a_process_that_catches_the_signal_for_itself_is_not_asked(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGRTMAX - 5, lambda *_: print('told', flush=True)); print('ready', flush=True); time.sleep(60)"
    with python(code, env={**os.environ, "RUNBOOK_DUMPS": str(tmp_path)}) as child:
        start = procs.start_ticks(child.pid)
        assert start is not None and "not known to be armed" in fault_stacks.dump(child.pid, start, 0.5)
        (tmp_path / f"{child.pid}.stacks").touch()
        assert "printed nothing" in fault_stacks.dump(child.pid, start, 0.5), "the twin: with the file it would have been asked"
