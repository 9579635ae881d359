"""One keeper per run and host: parent of what the run starts, witness of how it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from keeper_kit import Site, is_gone, until

from runbook.onhost import procs
from runbook.onhost.errors import OpError


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / ("state-" + "x" * 90))  # longer than a socket's path may be
    yield found
    found.close()


def refused(code, call, *args, **kwargs):
    with pytest.raises(OpError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code
    return caught.value


SLEEP = "import time; time.sleep(60)"


def test_many_at_once_start_one_keeper(site):
    states, threads = [], [threading.Thread(target=lambda: states.append(site.op("keeper_ensure"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 4
    assert len({(state["pid"], state["start"]) for state in states}) == 1
    assert all(state["alive"] for state in states)


def test_the_keeper_is_a_session_of_its_own_and_says_nothing_on_its_argv(site):
    state = site.op("keeper_ensure")
    stat = procs.read_stat(state["pid"])
    assert stat.sid == stat.pid
    line = procs.cmdline(state["pid"])
    assert not any(word in line for word in (b"runbook", b"keeper", site.run.encode()))
    for fd in (0, 1):
        assert os.readlink(f"/proc/{state['pid']}/fd/{fd}") == "/dev/null"
    assert procs.environ_value(state["pid"], "RUNBOOK_RUN") is None


@pytest.mark.slow
def test_a_launch_has_its_own_session_no_input_its_environment_and_its_log(site, tmp_path):
    text = """
import os, sys
print("err", file=sys.stderr, flush=True)
print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), os.environ["A"], os.environ["RUNBOOK_RUN"], os.getcwd())
print(os.environ["PATH"])
"""
    state = site.python("server", text, cwd=str(tmp_path), env={"A": "b c"})
    ended = site.ended("server")
    assert site.log("server").splitlines() == ["err", f"True '' b c r1 {tmp_path}", os.environ["PATH"]]
    assert (ended["exit"], ended.get("signal"), ended["oom_killed"], ended["stopped_by"]) == (0, None, False, None)
    assert ended["started"] <= ended["ended"]
    assert state["sid"] == state["pid"]
    assert state["interpreter"] == sys.executable  # a venv is found by this name, not by the link's target
    assert ended["max_rss"] > 1 << 20
    assert state["log_inode"] == os.stat(state["log"]).st_ino


@pytest.mark.slow
def test_a_log_that_is_used_again_is_appended_to(site, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("old\n")
    state = site.python("server", "print('new')", log=str(log))
    site.ended("server")
    assert log.read_text() == "old\nnew\n"
    assert (state["log_offset"], state["log_inode"]) == (4, log.stat().st_ino)


@pytest.mark.slow
@pytest.mark.parametrize("text, exit, name", [("raise SystemExit(3)", 3, None), ("import os; os.kill(os.getpid(), 11)", None, "SIGSEGV")])
def test_exit_code_or_signal_is_on_record(site, text, exit, name):
    site.python("server", text)
    ended = site.ended("server")
    assert (ended.get("exit"), ended.get("signal"), ended["oom_killed"]) == (exit, name, False)


def test_shell_text_runs_after_its_prelude_and_argv_too(site):
    site.op("launch", id="text", shell="echo $x-$y", prelude="x=1; export y=2")
    site.op("launch", id="list", argv=["sh", "-c", 'echo "$0 $y"', "a b"], prelude="export y=2")
    site.ended("text"), site.ended("list")
    assert (site.log("text"), site.log("list")) == ("1-2\n", "a b 2\n")


@pytest.mark.slow
def test_a_launch_that_cannot_start_is_an_error_that_names_it_and_leaves_nothing(site, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert "/no/such/program" in str(refused("not_found", site.op, "launch", id="a", argv=["/no/such/program"]))
    assert str(plain) in str(refused("permission", site.op, "launch", id="b", argv=[str(plain)]))
    assert "/no/folder" in str(refused("not_found", site.op, "launch", id="c", argv=["true"], cwd="/no/folder"))
    assert "/no/log" in str(refused("not_found", site.op, "launch", id="d", argv=["true"], log="/no/log"))
    refused("bad_request", site.op, "launch", id="e")
    refused("bad_request", site.op, "launch", id="../e", argv=["true"])
    assert os.listdir(site.folder.launches) == []
    assert site.op("keeper_state")["launches"] == []


@pytest.mark.slow
def test_two_lives_of_one_id_never_overlap(site):
    state = site.python("server", SLEEP)
    refused("exists", site.python, "server", SLEEP)
    os.kill(state["pid"], signal.SIGKILL)
    site.ended("server")
    assert site.python("server", "print(1)")["pid"] != state["pid"]
    assert site.ended("server")["exit"] == 0


@pytest.mark.slow
def test_our_own_kill_is_told_from_a_foreign_one(site):
    for id in ("ours", "foreign"):
        pid = site.python(id, SLEEP)["pid"]
        if id == "ours":
            site.op("keeper_note_kill", id=id, by="kill")
        os.kill(pid, signal.SIGTERM)
    assert site.ended("ours")["stopped_by"] == "kill"
    assert site.ended("foreign")["stopped_by"] is None


@pytest.mark.slow
def test_the_keeper_outlives_the_helper_that_started_it(tmp_path):
    """The helper is another process here; its death must change nothing."""
    site = Site(tmp_path)
    text = "import sys; sys.path[:0] = %r; from keeper_kit import Site; Site(%r).python('server', 'import time; time.sleep(.3); raise SystemExit(7)')"
    folders = [os.path.dirname(__file__), *sys.path]
    helper = subprocess.run([sys.executable, "-c", text % (folders, str(tmp_path))], start_new_session=True)
    assert helper.returncode == 0
    try:
        assert site.ended("server")["exit"] == 7
    finally:
        site.close()


@pytest.mark.slow
def test_the_files_of_a_dead_keeper_still_tell_everything(site):
    site.python("done", "raise SystemExit(4)")
    site.ended("done")
    state = site.python("server", SLEEP)
    keeper = site.keeper()
    os.kill(keeper["pid"], signal.SIGKILL)
    until(lambda: site.keeper() is None)
    found = site.op("keeper_state")
    assert not found["alive"]
    assert {item["id"]: item.get("exit") for item in found["launches"]} == {"done": 4, "server": None}
    assert site.op("keeper_ensure")["alive"]
    os.kill(state["pid"], signal.SIGKILL)
    ended = site.ended("server", 15)
    assert (ended.get("exit"), ended.get("signal")) == (None, None)
    assert "keeper" in ended["exit_unknown"]


@pytest.mark.slow
def test_a_run_can_be_retired_while_its_keeper_dies_and_a_renewal_replaces_it(site):
    """All three at the same moment: whoever comes second must not go on in a folder that is being removed."""

    def renew():
        try:
            site.op("keeper_renew")
        except (OpError, OSError) as error:
            told.append(str(error))  # it was retired before: nothing to renew

    for _ in range(12):
        told = []
        site.op("keeper_ensure")
        renewal = threading.Thread(target=renew)
        os.kill(site.keeper()["pid"], signal.SIGKILL)
        renewal.start()
        assert site.op("keeper_retire") == {"left": [], "kept": []}
        renewal.join()
        assert not site.folder.exists(), told
        assert not list(Path(site.ctx.state_dir).glob("runs/.*"))


@pytest.mark.slow
def test_orphans_of_a_launch_stay_in_reach(site):
    """A child that forks twice and starts a session of its own is neither below the server nor in its session."""
    text = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('/proc/self/comm', 'w').write('renamed::worker')
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
"""
    site.python("server", text)
    site.ended("server")
    pid = int(until(lambda: site.log("server")))
    assert procs.read_stat(pid).ppid == site.keeper()["pid"]
    [left] = site.op("keeper_retire")["left"]
    assert left.startswith(f"pid {pid} (renamed::worker")
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_retire_ends_the_keeper_and_leaves_nothing(site):
    site.python("server", "print(1)")
    site.ended("server")
    keeper = site.keeper()
    assert site.op("keeper_retire") == {"left": [], "kept": []}
    assert is_gone(keeper["pid"], keeper["start"])
    assert not os.path.exists(site.ctx.state_dir)
    assert site.op("keeper_retire") == {"left": [], "kept": []}
    refused("not_found", site.op, "keeper_state")


@pytest.mark.slow
def test_retire_names_what_still_runs_and_keeps_its_record(site):
    state = site.python("server", SLEEP, at_end="keep")
    answer = site.op("keeper_retire")
    [kept] = answer["kept"]
    assert f"pid {state['pid']} " in kept and answer["left"] == []
    assert os.path.exists(state["log"])
    assert not is_gone(state["pid"], state["start"])
    os.kill(state["pid"], signal.SIGKILL)


@pytest.mark.slow
def test_a_keeper_with_nothing_to_keep_leaves_by_itself(site):
    keeper = site.op("keeper_ensure", idle_s=0.2)
    until(lambda: is_gone(keeper["pid"], keeper["start"]))


@pytest.mark.slow
def test_a_waiting_keeper_uses_no_cpu(site):
    site.python("server", SLEEP)
    pid = site.keeper()["pid"]
    status = Path(f"/proc/{pid}/schedstat")

    def slept():
        before = status.read_text()
        time.sleep(0.5)
        return status.read_text() == before

    until(slept)  # it may still be at its first look at the launch; the next comes 10 s later
