"""Hangs inside one process or between a process and its own children: locks, queues, signals."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter, heartbeats
from tests.zoo.scenario import hung

WAITING = ("deadlock", "blocked_peer")
VFORK = """
#include <unistd.h>
int spawn(int fd) { char c; if (vfork() == 0) { while (read(fd, &c, 1) < 0); _exit(0); } return 0; }
"""


@hung(*WAITING)
def deadlock(stage: Stage) -> None:
    """Two threads and two locks in opposite order, beside a chatty metrics thread."""
    stage.say(stage.pick("loading tokenizer", "initialising engine", "building graph"))
    stage.pause(1, 4)
    faults.deadlock(stage)


@hung(*WAITING)
def fork_lock(stage: Stage) -> None:
    """A child forked while another thread held a lock: in the child nobody will ever release it."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(2)

    stage.thread(hold)
    held.wait()
    child = os.fork()
    if child == 0:
        stage.blame(pid=os.getpid())
        stage.stuck()
        with lock:
            os._exit(0)
    heartbeats(stage)
    os.waitpid(child, 0)


@hung(*WAITING)
def lost_wakeup(stage: Stage) -> None:
    """The main thread waits on a condition that was notified before it came; a pool of workers waits for jobs."""
    condition = threading.Condition()
    with ThreadPoolExecutor(stage.rng.randrange(2, 9)) as pool:
        list(pool.map(lambda n: sum(range(n)), range(5000)))
        stage.say("all shards submitted")
        stage.stuck()
        with condition:
            condition.wait()


@hung("deadlock", "blocked_peer", "livelock", twin="future_that_comes")
def asyncio_future(stage: Stage) -> None:
    """A future that nobody sets, beside a task whose tick counter rises in the log."""

    async def tick() -> None:
        number = stage.rng.randrange(1000)
        text, every = stage.pick("tick {}", "scheduler step {}", "event loop iteration {}"), stage.spread(0.3, 2)
        while True:
            number += 1
            stage.say(text.format(number))
            await asyncio.sleep(every)

    async def run() -> None:
        task = asyncio.create_task(tick())
        stage.stuck()
        await asyncio.get_running_loop().create_future()
        task.cancel()

    asyncio.run(run())


@hung("stopped", pace="decisive")
def stopped(stage: Stage) -> None:
    """The main process is stopped by a signal while it loads."""
    for number in range(stage.rng.randrange(3, 8)):
        stage.say(f"loaded layer {number}")
        sum(i * i for i in range(200_000))
        stage.pause(0.2, 1)
    stage.blame(pid=os.getpid())
    stage.stuck()
    os.kill(os.getpid(), signal.SIGSTOP)
    stage.say("continued")


@hung("child_dead", pace="decisive")
def child_dead(stage: Stage) -> None:
    """A worker is dead and not yet reaped; its parent waits for its handshake, which nobody brings any more, and prints heartbeats."""
    argv = [sys.executable, "-S", "-c", f"import time; time.sleep({stage.spread(1, 4)}); raise SystemExit(1)"]
    child, ready = subprocess.Popen(argv, stdout=subprocess.PIPE), threading.Event()
    stage.blame(pid=child.pid)

    def greet() -> None:
        assert child.stdout is not None
        if child.stdout.readline():
            ready.set()

    stage.thread(greet)
    heartbeats(stage)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    stage.stuck()
    ready.wait()


@hung("child_dead", "blocked_peer", pace="decisive")
def queue_of_dead_child(stage: Stage) -> None:
    """The main process waits on a queue whose producer was killed."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    count = stage.rng.randrange(2, 6)

    def produce() -> None:
        for number in range(count):
            queue.put(number)
            time.sleep(0.3)
        queue.close()
        queue.join_thread()
        os.kill(os.getpid(), signal.SIGKILL)

    child = context.Process(target=produce, daemon=True)
    child.start()
    stage.blame(pid=child.pid)
    while True:
        stage.stuck()
        stage.say(f"got item {queue.get()}")


@hung("deadlock", "blocked_peer", "io_blocked")
def flock_of_hung_holder(stage: Stage) -> None:
    """A process waits for a file lock whose holder, its own child, waits for ever itself."""
    path = stage.folder / stage.pick("model.lock", ".cache.lck", "download.lock")
    taken, let = os.pipe()
    child = os.fork()
    if child == 0:
        stage.blame(pid=os.getpid())
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        os.write(let, b"x")
        stage.stuck()
        threading.Event().wait()
    os.read(taken, 1)
    if stage.seed % 2:
        chatter(stage)
    stage.say(f"acquiring {path.name}")
    stage.stuck()
    fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)


@hung("io_blocked", "blocked_peer", "deadlock")
def vfork_parent(stage: Stage) -> None:
    """D state without any disk: a parent in vfork whose child reads, before it starts anything, a pipe that only the two hold."""
    source, library = stage.folder / "spawn.c", stage.folder / "libspawn.so"
    source.write_text(VFORK)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    inlet, outlet = os.pipe()
    stage.pause(0.5, 2)
    stage.say("starting tokenizer worker")
    stage.stuck()
    ctypes.CDLL(str(library)).spawn(inlet)
    os.close(outlet)


@hung("blocked_peer", "deadlock", "io_blocked")
def pipe_of_hung_child(stage: Stage) -> None:
    """The main process reads a pipe whose writer, a child, hangs on a lock."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        stage.blame(pid=os.getpid())
        os.write(outlet, b"hello\n" * stage.rng.randrange(10, 500))
        stage.stuck()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    os.close(outlet)
    if stage.seed % 2:
        heartbeats(stage)
    while data := os.read(inlet, 4096):
        stage.say(f"worker said {len(data)} bytes")
