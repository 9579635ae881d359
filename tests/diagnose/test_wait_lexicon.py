"""The wait lexicon decides who looks blocked: examples of what must be known, and of working code that must not be taken for it."""

from __future__ import annotations

import re

import pytest

from runbook.diagnose.places import frame_kind, wchan_kind
from runbook.diagnose.wait_lexicon import BLOCKED, FRAMES, PASSIVE, WCHAN


@pytest.mark.parametrize(
    ("channel", "kind"),
    [
        ("futex_wait_queue", "lock"),
        ("futex_do_wait", "lock"),
        ("futex_wait_queue_me", "lock"),
        ("locks_lock_inode_wait", "flock"),
        ("hrtimer_nanosleep", "timer"),
        ("do_nanosleep", "timer"),
        ("ep_poll", "loop"),
        ("do_epoll_wait", "loop"),
        ("poll_schedule_timeout.constprop.0", "loop"),
        ("do_poll.constprop.0", "loop"),
        ("do_sigtimedwait", "loop"),
        ("inet_csk_accept", "loop"),
        ("pipe_read", "pipe_read"),
        ("anon_pipe_read", "pipe_read"),
        ("wait_for_partner", "fifo"),
        ("pipe_write", "pipe_write"),
        ("anon_pipe_write", "pipe_write"),
        ("n_tty_read", "tty"),
        ("unix_stream_read_generic", "unix"),
        ("wait_woken", "recv"),
        ("sk_wait_data", "recv"),
        ("inet_wait_for_connect", "connect"),
        ("do_wait", "child"),
        ("kernel_wait4", "child"),
        ("kernel_clone", "child"),
        ("folio_wait_bit_common", "io"),
        ("io_schedule", "io"),
        ("rpc_wait_bit_killable", "io"),
        ("nfs_wait_bit_killable", "io"),
        ("request_wait_answer", "io"),
        ("rwsem_down_read_slowpath", "driver"),
        ("os_acquire_rwlock_write", "driver"),
        ("0", ""),
        ("", ""),
        ("some_symbol_of_tomorrow", ""),
    ],
)
def test_a_wait_channel_says_what_is_waited_for(channel: str, kind: str) -> None:
    assert wchan_kind(channel) == kind


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (["wait (threading.py:327)", "run (app.py:3)"], "lock"),
        (["Condition.wait (threading.py:327)"], "lock"),
        (["Queue.get (queue.py:171)"], "lock"),
        (["result (concurrent/futures/_base.py:451)"], "lock"),
        (["SoftFileLock.acquire (filelock/_api.py:250)"], "lock"),
        (["wait (torch/utils/file_baton.py:49)"], "lock"),
        (["all_reduce (torch/distributed/distributed_c10d.py:2501)"], "collective"),
        (["_env_rendezvous_handler (torch/distributed/rendezvous.py:258)"], "collective"),
        (["dispatch (deep_ep/buffer.py:350)"], "collective"),
        (["readinto (socket.py:718)", "read (http/client.py:463)"], "recv"),
        (["read (ssl.py:1099)"], "recv"),
        (["create_connection (socket.py:837)"], "connect"),
        (["_try_wait (subprocess.py:2012)"], "child"),
        (["poll (multiprocessing/popen_fork.py:27)"], "child"),
        (["_recv (multiprocessing/connection.py:395)"], "pipe_read"),
        (["select (selectors.py:468)", "_run_once (asyncio/base_events.py:1898)"], "loop"),
        (["accept (socket.py:294)"], "loop"),
        (["SimpleQueue.get (multiprocessing/queues.py:386)", "worker (multiprocessing/pool.py:114)"], "idle"),
        (["_worker (concurrent/futures/thread.py:81)"], "idle"),
        (["main (multiprocessing/resource_tracker.py:197)"], "idle"),
        (["synchronize (torch/cuda/__init__.py:985)"], "driver"),
        (["wait_until_ready (engine.py:4)"], "waits"),
        (["pollCompletion (engine.py:4)"], "waits"),
        (["is_set (threading.py:601)", "wait_for_peer (engine.py:4)"], "waits"),
        (["done (x.py:1)", "ready (x.py:2)", "spin_until (x.py:3)"], "waits"),
    ],
)
def test_the_innermost_frame_says_what_is_waited_for(frames: list[str], kind: str) -> None:
    assert frame_kind(frames) == kind


@pytest.mark.parametrize(
    "frames",
    [
        ["svd (numpy/linalg.py:1681)"],
        ["match (re.py:190)", "wait_for_template (chat.py:9)"],
        ["crunch (work.py:1)", "wait_for_batch (loop.py:9)"],
        ["join (posixpath.py:71)"],
        ["block_copy (cache.py:4)"],
        ["unlock_weights (cache.py:4)"],
        ["awaitable_name (x.py:1)"],
        ["barriers (x.py:1)"],
        ["barrier_free_sum (x.py:1)", "x (y.py:1)"][1:],
        ["forward (torch/nn/modules/linear.py:125)"],
        ["loads (pickle.py:1)"],
        ["<genexpr> (parse.py:3)"],
        ["gather (ops.py:4)"],
        ["dispatch (router.py:4)"],
        [],
    ],
)
def test_working_code_is_not_taken_for_waiting(frames: list[str]) -> None:
    assert frame_kind(frames) == ""


def test_every_pattern_compiles_and_every_kind_is_one_that_the_rules_know() -> None:
    for kind, pattern in (*WCHAN, *FRAMES):
        assert re.compile(pattern) and kind in BLOCKED | PASSIVE


def test_what_comes_back_by_itself_is_never_blocked() -> None:
    assert not BLOCKED & PASSIVE and {"timer", "loop", "idle"} == PASSIVE
