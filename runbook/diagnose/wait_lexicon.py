"""Which kernel wait channels and which innermost frames mean waiting, and for what. Data that a verdict rests on.

A word too many here makes a working thread look blocked, a word too few clears a hung one. `tests/diagnose/test_wait_lexicon.py`
holds examples of both; add one with every change. Wait channels are symbols of Linux 4.x to 6.x as /proc/PID/wchan shows them.

Kinds: lock, flock, recv, unix, fifo, pipe_read, pipe_write, tty, child, io, connect, collective, driver (it must come from elsewhere);
loop (waits for whatever comes, so an idle server), timer (comes back by itself), idle (a helper or a worker without a task).
"""

from __future__ import annotations

import re

WCHAN: tuple[tuple[str, str], ...] = (
    ("timer", r"hrtimer_nanosleep|do_nanosleep|clock_nanosleep|common_nsleep|schedule_hrtimeout"),
    ("loop", r"ep_poll|do_epoll_wait|epoll_wait|poll_schedule_timeout|do_poll|do_sys_poll|do_select|io_cqring_wait"),
    ("loop", r"inet_csk_accept|unix_accept|sigtimedwait|sigsuspend|do_pause|sys_pause|signalfd|eventfd_read|inotify_read"),
    ("lock", r"futex|do_semtimedop|do_msgrcv"),
    ("flock", r"flock_lock_inode_wait|locks_lock_inode_wait|posix_lock_inode_wait|fcntl_setlk"),
    ("fifo", r"wait_for_partner|fifo_open"),
    ("pipe_read", r"pipe_read|pipe_wait_readable"),
    ("pipe_write", r"pipe_write|pipe_wait_writable"),
    ("tty", r"n_tty_read|tty_read"),
    ("unix", r"unix_stream_(?:read_generic|data_wait|recvmsg)|unix_dgram_recvmsg|skb_wait_for_more_packets|skb_recv_datagram"),
    ("connect", r"inet_wait_for_connect|inet_stream_connect|tcp_connect|unix_stream_connect"),
    ("recv", r"wait_woken|sk_wait_data|tcp_recvmsg|sk_stream_wait_memory"),
    ("child", r"do_wait|kernel_wait4|kernel_clone|wait_for_vfork|_do_fork"),
    ("driver", r"^(?:_?nv|nvidia|uvm|os_acquire|rm_|kfd_|amdgpu|dma_fence)|rwsem_down_(?:read|write)"),
    ("io", r"folio_wait|wait_on_page|io_schedule|rq_qos_wait|blk_mq_get_tag|nfs|rpc_wait|jbd2|xfs_|ext4_|fuse|request_wait_answer"),
    ("io", r"ceph|lustre|cl_sync_io|cv_wait_common|filemap_fault|do_swap_page|swap_readpage|balance_dirty|wait_on_bit|sync_inode"),
)
"""(kind, regex searched in the wait channel), the first that matches counts."""

FRAMES: tuple[tuple[str, str], ...] = (
    ("idle", r"^(?:get|_get|recv) \(\S*multiprocessing/(?:queues|pool)\.py|^worker \(\S*multiprocessing/pool\.py"),
    ("idle", r"^_worker \(\S*concurrent/futures/thread\.py|^_process_worker \(\S*concurrent/futures/process\.py"),
    ("idle", r"^main \(\S*multiprocessing/(?:resource_tracker|forkserver)\.py|\(\S*torch/_inductor/compile_worker/"),
    ("loop", r"^(?:select|poll) \(\S*selectors\.py|^(?:_?run_once|run_forever) \(\S*asyncio/|^(?:_poll|zmq_poll|poll) \(\S*zmq/"),
    ("loop", r"^serve_forever \(\S*socketserver\.py|^accept \(\S*socket\.py"),
    ("collective", r"\(\S*torch/distributed/(?:distributed_c10d|c10d_logger|rendezvous|elastic/rendezvous)\S*\.py"),
    ("collective", r"^(?:dispatch|combine|internode_dispatch)\w* \(\S*deep_ep/"),
    ("recv", r"^(?:recv\w*|read|readinto|_read_\w+|readline) \(\S*(?:socket|ssl|http/client|urllib3/\S+|requests/\S+|httpcore/\S+)\.py"),
    ("connect", r"^(?:create_connection|connect\w*) \(\S*(?:socket|http/client|connection)\.py"),
    ("child", r"^(?:_?wait|_try_wait|communicate|_communicate|poll) \(\S*(?:subprocess|popen_fork|popen_spawn_posix)\.py"),
    ("child", r"^join \(\S*multiprocessing/process\.py|^join \(\S*torch/multiprocessing/spawn\.py"),
    ("pipe_read", r"^(?:_recv|_recv_bytes|recv|recv_bytes|wait) \(\S*multiprocessing/connection\.py"),
    ("lock", r"^(?:wait|join|_wait_for_tstate_lock|acquire|__enter__|wait_for) \(\S*threading\.py|^(?:get|put|join) \(\S*queue\.py"),
    ("lock", r"^(?:result|exception|wait) \(\S*concurrent/futures/_base\.py"),
    ("lock", r"\(\S*(?:filelock/\S+|torch/utils/file_baton)\.py"),
    ("driver", r"^(?:synchronize|_?cuda_?synchronize\w*|event_?synchronize) \("),
)
"""(kind, regex searched in `function (file:line)` of the innermost frame)."""

LOCK_FILE = re.compile(
    r"\(\S*(?:file_baton|filelock/\S+|lockfile\S*|portalocker/\S+)\.py|(?:^|[._])\w*(?:file_?lock|lock_?file)\w* \(", re.IGNORECASE
)
"""A frame of a wait for a lock file."""

WAITING_WORDS = frozenset(
    "wait waits waiting await spin spins spinning poll polls polling barrier acquire synchronize rendezvous yield sleep until lock".split()
)
"""A function whose name holds one of these words waits: `wait_for_peer`, `spin_until`. Words are split at _ and at capitals."""

TRIVIAL = frozenset(
    "is_set done query test check ready is_ready is_done exists isfile stat time monotonic perf_counter poll_once peek locked empty".split()
)
"""Innermost functions that say nothing: their caller counts."""

ACTS_AGAIN = re.compile(
    r"\bre-?(?:start|spawn|launch|boot|tr(?:y|ies|ied)\b|connect|creat)|\bback(?:ing)?[- ]?off\b"
    r"|\b(?:try|tries|trying|start\w*|launch\w*|spawn\w*) (?:again|anew|(?:a |an |the )?(?:new|fresh|another)\b)"
    r"|\bnext (?:try|attempt)\b|\battempt \d|\bagain in \d|\breplac",
    re.IGNORECASE,
)
"""What a supervisor says that is about to start its dead worker again."""

BLOCKED = frozenset("lock flock recv unix fifo pipe_read pipe_write tty child io connect collective driver waits".split())
"""Kinds in which a thread cannot go on by itself. `waits`: by a waiting word only, for nobody knows what."""
PASSIVE = frozenset({"loop", "idle", "timer"})
"""Kinds that prove nothing: an idle server, a helper without a task, a sleep that ends by itself."""
