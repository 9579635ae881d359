"""Live twins that wait for long and go on by themselves: for a thread, a signal, a time, another process. Undecided is right here.

Each goes on after minutes; nobody looks that long, and from outside nothing tells when it will. None may be called hung.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter, throttled_read
from tests.zoo.disguise import telling
from tests.zoo.loads import MIB, shard
from tests.zoo.ranks import WORLD, fork_ranks
from tests.zoo.scenario import live
from tests.zoo.waits import announce, outside


def long(stage: Stage) -> float:
    """Longer than anybody looks, seconds."""
    return stage.spread(100, 240)


def go_on(stage: Stage) -> None:
    """What it does in the end: it loads."""
    path = shard(stage, 0, 8 * MIB)
    while True:
        throttled_read(path, 300 * 1024, stage.rng)


@live(silent=True)
def joins_a_sleeper(stage: Stage) -> None:
    """The main thread joins a thread that sleeps and then works."""
    thread = stage.thread(lambda: time.sleep(long(stage)))
    if stage.seed % 4 < 2:
        chatter(stage)
    thread.join()
    go_on(stage)


@live(silent=True)
def waits_with_a_limit(stage: Stage) -> None:
    """It waits for an event, and after some minutes goes on without it."""
    threading.Event().wait(long(stage))
    go_on(stage)


@live(silent=True)
def sleeps_until_its_time(stage: Stage) -> None:
    """A batch job that begins at a given time."""
    stage.say("next run is due in some minutes")
    time.sleep(long(stage))
    go_on(stage)


@live(silent=True)
def waits_for_an_alarm(stage: Stage) -> None:
    """An event that the handler of a timer's signal sets."""
    rings = threading.Event()
    signal.signal(signal.SIGALRM, lambda number, frame: rings.set())
    signal.setitimer(signal.ITIMER_REAL, long(stage))
    rings.wait()
    go_on(stage)


def _signals(stage: Stage) -> None:
    announce(stage, "")
    time.sleep(long(stage))
    os.kill(int((stage.folder / "pid").read_text()), signal.SIGUSR1)


@live(silent=True, outside=_signals)
def waits_for_a_signal(stage: Stage) -> None:
    """An event that a signal from another process sets."""
    told = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: told.set())
    (stage.folder / "pid").write_text(str(os.getpid()))
    told.wait()
    go_on(stage)


@live(silent=True)
def waits_for_a_semaphore(stage: Stage) -> None:
    """A semaphore in shared memory, which its child posts after a while."""
    done = multiprocessing.get_context("fork").Semaphore(0)
    if os.fork() == 0:
        time.sleep(long(stage))
        done.release()
        threading.Event().wait()
    done.acquire()
    go_on(stage)


@live(silent=True)
def flock_holder_sleeps(stage: Stage) -> None:
    """It waits for a file lock whose holder, its child, sleeps between two attempts."""
    path = stage.folder / "model.lock"
    taken, let = os.pipe()
    if os.fork() == 0:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        os.write(let, b"x")
        time.sleep(long(stage))
        os._exit(0)
    os.read(taken, 1)
    fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)
    go_on(stage)


@live(silent=True)
def writer_waits_with_a_limit(stage: Stage) -> None:
    """The main process reads a pipe whose writer, a child, waits for an event for some minutes before it goes on."""
    inlet, outlet = os.pipe()
    if os.fork() == 0:
        threading.Event().wait(long(stage))
        while True:
            os.write(outlet, bytes(4096))
            time.sleep(0.05)
    os.close(outlet)
    while os.read(inlet, 4096):
        pass


def _pauses(stage: Stage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(stage, listener.getsockname()[1])
    connection, _ = listener.accept()
    while True:
        connection.sendall(bytes(3 << 20))
        time.sleep(long(stage))


@live(silent=True, outside=_pauses)
def peer_pauses(stage: Stage) -> None:
    """A download whose peer sends on after some minutes."""
    connection = socket.create_connection(("127.0.0.1", int(outside(stage))))
    while connection.recv(1 << 16):
        pass


@live(silent=True)
def lock_holder_polls(stage: Stage) -> None:
    """Two threads wait for a lock; its holder looks several times a second whether something far away is done."""
    lock, held, until = threading.Lock(), threading.Event(), time.monotonic() + long(stage)

    def hold() -> None:
        with lock:
            held.set()
            while time.monotonic() < until:
                time.sleep(0.3)

    def second() -> None:
        with lock:
            pass

    stage.thread(hold)
    held.wait()
    stage.thread(second)
    with lock:
        go_on(stage)


@live(silent=True, stdin="pipe")
def tasks_by_stdin(stage: Stage) -> None:
    """A worker that reads its next task from standard input, where none comes yet."""
    stage.say("worker ready")
    for line in sys.stdin:
        stage.say(f"done: {line}")


def _dispatches(stage: Stage) -> None:
    jobs = stage.folder / "jobs"
    os.mkfifo(jobs)
    announce(stage, "")
    handle = os.open(jobs, os.O_WRONLY)
    threading.Event().wait(long(stage))
    os.write(handle, b"job")


@live(silent=True, outside=_dispatches)
def next_job_beside_a_zombie(stage: Stage) -> None:
    """It reads its next job from a dispatcher that has none; a tool that it called long ago failed and was never reaped."""
    subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(1)"])
    stage.say("optional tool failed, going on without")
    os.read(os.open(stage.folder / "jobs", os.O_RDONLY), 100)
    go_on(stage)


@live(silent=True)
def spins_for_a_thread(stage: Stage) -> None:
    """The main thread looks at a flag at full speed, until another thread has computed for minutes."""
    flag: list[int] = []

    def work() -> None:
        value, until = bytes(64), time.monotonic() + long(stage)
        while time.monotonic() < until:
            value = hashlib.pbkdf2_hmac("sha256", value, b"salt", 200_000)
        flag.append(1)

    def look() -> None:
        while not flag:
            os.sched_yield()

    stage.thread(work)
    telling(look, stage.rng)()
    go_on(stage)


@live(silent=True, ranks=WORLD)
def rank_waits_for_requests(stage: Stage) -> None:
    """Ranks between requests: one waits for a thread that asks a queue far away several times a second, the others for it in a broadcast."""
    import torch
    import torch.distributed as dist

    odd, until = stage.odd(WORLD), time.monotonic() + long(stage)

    def body(rank: int, port: int) -> None:
        faults.join(rank, WORLD, port)
        faults.steps(stage, 3, 0.2, rank)
        if rank == odd:
            requests: queue.Queue[int] = queue.Queue()

            def ask() -> None:
                while time.monotonic() < until:
                    time.sleep(0.4)
                requests.put(1)

            threading.Thread(target=ask, daemon=True).start()
            requests.get()
        dist.broadcast(torch.ones(8), src=odd)

    fork_ranks(stage, body)
    os.wait()


@live(silent=True)
def polls_a_job_elsewhere(stage: Stage) -> None:
    """It asks again and again how far a job on other machines is, and says so; that job takes minutes for each part."""
    total, text = (
        stage.rng.choice((16, 64)),
        stage.pick("job 4711: {}/{} parts finished", "remote build {}/{}", "transfer of shards: {}/{}"),
    )
    part_s, begin = long(stage), time.monotonic()
    while True:
        stage.say(text.format(1 + int((time.monotonic() - begin) / part_s), total))
        stage.pause(0.3, 2)


@live(silent=True)
def waits_for_jobs_beside_a_zombie(stage: Stage) -> None:
    """A worker says that it waits for its next job; a tool that it called at its start failed and was never reaped."""
    subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(1)"])
    begin, every = time.monotonic(), stage.spread(1, 5)
    while True:
        stage.say(stage.pick("waiting for the next job", f"still waiting for tasks ({time.monotonic() - begin:.0f}s)"))
        time.sleep(every)


@live(silent=True)
def log_reader_pauses(stage: Stage) -> None:
    """Its log goes through a pipe whose reader hands on what it has, and takes minutes for that."""
    inlet, outlet = os.pipe()
    if os.fork() == 0:
        os.close(outlet)
        while os.read(inlet, 1 << 16):
            time.sleep(long(stage))
    os.close(inlet)
    os.dup2(outlet, 1)
    for number in itertools.count():
        os.write(1, f"step {number} done, loss {stage.rng.random():.4f} {'.' * 300}\n".encode())


@live(silent=True, ranks=WORLD)
def front_without_requests(stage: Stage) -> None:
    """Ranks wait in a broadcast for their front, which is a member of their group and has no request yet."""
    import torch
    import torch.distributed as dist

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def body(rank: int, _: int) -> None:
        faults.join(rank, WORLD + 1, port)
        dist.broadcast(torch.ones(8), src=WORLD)

    fork_ranks(stage, body)
    faults.join(WORLD, WORLD + 1, port)
    until = time.monotonic() + long(stage)
    while time.monotonic() < until:
        time.sleep(0.5)
    dist.broadcast(torch.ones(8), src=WORLD)


@live(silent=True, ranks=WORLD)
def last_rank_waits_for_its_gpu(stage: Stage) -> None:
    """Three of four ranks wait at the rendezvous; the launcher polls until the last one may start."""
    fork_ranks(stage, lambda rank, port: faults.join(rank, WORLD, port), without={stage.odd(WORLD)})
    until = time.monotonic() + long(stage)
    while time.monotonic() < until:
        time.sleep(0.5)
    go_on(stage)
