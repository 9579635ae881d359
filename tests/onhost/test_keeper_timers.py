"""When no controller comes back, the keeper stops what has to stop and gives patched files back, by itself."""

import hashlib
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keeper_kit import Site, is_gone, until

from runbook.onhost.errors import OpError
from runbook.onhost.runfolder import read_json
from runbook.onhost.timers import next_due

BEFORE, AFTER = b"a = 1\n", b"a = 2\n"
SLEEP = "import time; time.sleep(60)"
FAST = ["TERM 0.3s", "KILL 5s"]
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in ("rank::TP0", "rank::TP1"):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write(name)
        time.sleep(60)
        os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "part.py"
    path.write_bytes(BEFORE)
    os.utime(path, ns=(10**18, 10**18))
    return path


def patch(site, path, id="taps", undo_after_s=1.0):
    return site.op("patch", AFTER, id=id, path=str(path), expect_sha256=hashlib.sha256(BEFORE).hexdigest(), undo_after_s=undo_after_s)


def acts(site):
    return until(lambda: (read_json(site.folder.ended) or {}).get("acts"))


@pytest.mark.slow
def test_a_lost_controllers_launch_is_stopped_with_all_its_renamed_and_orphaned_children(site):
    state = site.python("server", STUBBORN, suspend_for_s=0.7, ladder=FAST)
    orphan = int(until(lambda: site.op("keeper_renew") and site.log("server")))
    keeper = site.keeper()
    [act] = acts(site)
    assert act["why"] == "lost"
    assert act["stopped"] == [{"id": "server", "pid": state["pid"], "left": []}]
    assert not os.path.exists(f"/proc/{orphan}")
    ended = site.ended("server")
    assert (ended["signal"], ended["stopped_by"], ended["oom_killed"]) == ("SIGKILL", "expiry", False)
    until(lambda: is_gone(keeper["pid"], keeper["start"]))


@pytest.mark.slow
def test_a_launch_to_keep_outlives_its_controller(site):
    kept = site.python("kept", SLEEP, suspend_for_s=0.3, at_end="keep")
    site.python("stopped", SLEEP, suspend_for_s=0.3, ladder=FAST)
    [act] = acts(site)
    assert [item["id"] for item in act["stopped"]] == ["stopped"]
    assert not is_gone(kept["pid"], kept["start"])
    os.kill(kept["pid"], signal.SIGKILL)


@pytest.mark.slow
def test_a_lost_controllers_patch_is_undone_after_the_server_that_imports_it(site, source):
    was = os.stat(source).st_mtime_ns
    site.python("server", SLEEP, ladder=FAST)
    patch(site, source)
    assert source.read_bytes() == AFTER
    [act] = acts(site)
    assert act["why"] == "undo"
    assert [item["id"] for item in act["stopped"]] == ["server"]
    assert [item["state"] for item in act["restored"]] == ["restored"]
    assert (source.read_bytes(), os.stat(source).st_mtime_ns) == (BEFORE, was)
    assert site.ended("server")["stopped_by"] == "undo"
    until(lambda: site.keeper() is None)


@pytest.mark.slow
def test_a_live_controller_keeps_the_patch_for_as_long_as_it_renews(site, source):
    patch(site, source)
    until_then = time.monotonic() + 1.6
    while time.monotonic() < until_then:
        site.op("keeper_renew")
        time.sleep(0.1)
    assert source.read_bytes() == AFTER
    until(lambda: source.read_bytes() == BEFORE)


@pytest.mark.slow
def test_a_suspended_run_stays_as_it_is_until_its_expiry(site, source):
    state = site.python("server", SLEEP, suspend_for_s=0.2, ladder=FAST)
    patch(site, source)
    site.op("keeper_suspend", expires=time.time() + 1.8)
    assert site.op("keeper_state")["expires"] == pytest.approx(time.time() + 1.8, abs=1)
    time.sleep(0.9)
    assert not is_gone(state["pid"], state["start"])
    [act] = acts(site)
    assert act["why"] == "expiry"
    assert act["t"] >= read_json(site.folder.suspended)["expires"]
    assert source.read_bytes() == BEFORE


@pytest.mark.slow
def test_somebody_elses_edit_survives_the_timer_and_stays_on_record(site, source):
    patch(site, source)
    source.write_bytes(b"theirs\n")
    [act] = acts(site)
    assert [item["state"] for item in act["restored"]] == ["conflict"]
    assert source.read_bytes() == b"theirs\n"
    until(lambda: site.keeper() is None)
    [undo] = site.op("keeper_state")["undo"]
    assert undo["id"] == "taps"
    assert any(str(source) in item for item in site.op("keeper_retire")["left"])
    assert os.path.exists(os.path.join(undo["folder"], "original"))


@pytest.mark.slow
def test_a_keeper_that_is_told_to_end_cleans_up_first(site, source):
    state = site.python("server", SLEEP, ladder=FAST)
    patch(site, source, undo_after_s=60)
    os.kill(site.keeper()["pid"], signal.SIGTERM)
    until(lambda: site.keeper() is None)
    assert source.read_bytes() == BEFORE
    assert is_gone(state["pid"], state["start"])


@pytest.mark.slow
def test_a_new_keeper_takes_over_the_timers_of_a_dead_one(site, source):
    patch(site, source, undo_after_s=1.0)
    os.kill(site.keeper()["pid"], signal.SIGKILL)
    until(lambda: site.keeper() is None)
    assert source.read_bytes() == AFTER
    site.op("keeper_ensure")
    until(lambda: source.read_bytes() == BEFORE)


@pytest.mark.slow
def test_a_renewal_replaces_a_dead_keeper_which_then_keeps_the_timers(site, source):
    """The controller lives, so it finds out; when it dies as well, the file still comes back."""
    patch(site, source, undo_after_s=1.0)
    dead = site.keeper()
    os.kill(dead["pid"], signal.SIGKILL)
    until(lambda: site.keeper() is None)
    assert site.op("keeper_renew") == {"replaced": True}
    assert site.keeper()["pid"] != dead["pid"]
    assert site.op("keeper_renew") == {"replaced": False}
    until(lambda: source.read_bytes() == BEFORE)


@pytest.mark.slow
def test_a_renewal_that_comes_after_the_run_was_retired_brings_nothing_back(site):
    site.op("keeper_ensure")
    assert site.op("keeper_retire") == {"left": [], "kept": []}
    with pytest.raises(OpError):
        site.op("keeper_renew")
    assert not site.folder.exists()


@pytest.mark.slow
def test_a_patch_needs_at_least_a_second(site, source):
    with pytest.raises(OpError):
        patch(site, source, undo_after_s=0.5)
    assert source.read_bytes() == BEFORE


SPANS = st.lists(st.floats(0.1, 1e6), max_size=4)
TIMES = st.floats(0, 1e9)


@given(TIMES, SPANS, SPANS, st.floats(1, 1e6), st.floats(0, 1e6))
def test_a_renewal_moves_every_timer_by_as_much(renewed, suspend, undo, idle_s, by):
    first, second = (next_due(at, None, suspend, undo, idle_s, False) for at in (renewed, renewed + by))
    assert first.why == second.why or abs(min(suspend, default=0) - min(undo, default=0)) < 1e-3
    assert second.at - first.at == pytest.approx(by, abs=1e-3)


@given(TIMES, st.floats(0, 1e9), SPANS, SPANS)
def test_while_suspended_only_the_expiry_counts(renewed, expires, suspend, undo):
    assert next_due(renewed, expires, suspend, undo, 600, True) == (expires, "expiry")


@given(TIMES, SPANS, SPANS)
def test_what_is_owed_never_leaves_idle(renewed, suspend, undo):
    due = next_due(renewed, None, suspend, undo, 600, False)
    assert (due.why == "idle") == (not suspend and not undo)
    assert next_due(renewed, None, [], [], 600, True).at == float("inf")
