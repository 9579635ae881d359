"""Live twins that look like one kind of hang in all but one thing."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import signal
import socket
import threading
import time
from pathlib import Path

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter, throttled_read
from tests.zoo.loads import MIB, shard
from tests.zoo.ranks import WORLD, fork_ranks
from tests.zoo.scenario import live
from tests.zoo.waits import announce, outside


def _load_for_ever(stage: Stage) -> None:
    path = shard(stage, 0, 16 * MIB)
    while True:
        throttled_read(path, stage.spread(120, 500) * 1024, stage.rng)


@live()
def stopped_for_a_moment(stage: Stage) -> None:
    """It is stopped again and again, for some seconds each time, as a busy batch system does; in between it loads."""
    parent = os.getpid()
    if os.fork() == 0:
        while True:
            stage.pause(6, 14)
            os.kill(parent, signal.SIGSTOP)
            stage.pause(2, 7)
            os.kill(parent, signal.SIGCONT)
    _load_for_ever(stage)


@live()
def slow_log_reader(stage: Stage) -> None:
    """Its log goes through a pipe that is nearly always full, whose reader copies a few lines a second."""
    inlet, outlet = os.pipe()
    target = os.dup(1)
    if os.fork() == 0:
        os.close(outlet)
        while data := os.read(inlet, 400):
            os.write(target, data)
            time.sleep(0.3)
    os.close(inlet)
    os.dup2(outlet, 1)
    value = stage.rng.randbytes(32)
    for number in itertools.count():
        value = hashlib.sha256(value * 1000).digest()
        os.write(1, f"layer {number % 61} of shard {number // 61}: checksum {value.hex()[:12]} norm {value[0] / 7:.3f}\n".encode())


@live(stdin="pipe")
def waits_for_commands(stage: Stage) -> None:
    """The main thread waits for commands on standard input, where none comes yet; a thread loads the weights."""
    stage.thread(lambda: _load_for_ever(stage))
    os.read(0, 1)


def _trickle(stage: Stage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    announce(stage, listener.getsockname()[1])
    connection, _ = listener.accept()
    rate = stage.spread(20, 45) * 1024
    while True:
        connection.sendall(stage.rng.randbytes(4096))
        time.sleep(4096 / rate)


@live(outside=_trickle)
def trickle(stage: Stage) -> None:
    """A download at a fraction of the usual rate, steady."""
    connection = socket.create_connection(("127.0.0.1", int(outside(stage))))
    while connection.recv(1 << 16):
        pass


@live()
def child_opens_port_late(stage: Stage) -> None:
    """It tries in vain to connect to its own worker, again and again, since the worker still loads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if os.fork() == 0:
        _load_for_ever(stage)
    text, pause = stage.pick("engine at {} not ready, attempt {}", "connect to 127.0.0.1:{} failed ({}), retrying"), stage.spread(0.5, 4)
    for number in itertools.count():
        with socket.socket() as probe:
            probe.connect_ex(("127.0.0.1", port))
        stage.say(text.format(port, number))
        time.sleep(pause)


@live()
def slow_counter(stage: Stage) -> None:
    """The log talks much; its one counter takes ten to twenty seconds for each step, in which it computes."""
    total, pause = stage.rng.choice((64, 163, 200)), stage.spread(9, 18)
    chatter(stage)
    for done in range(1, total):
        until, value = time.monotonic() + pause, stage.rng.randbytes(64)
        while time.monotonic() < until:
            value = hashlib.pbkdf2_hmac("sha256", value, b"salt", 20_000)
            time.sleep(0.05)
        stage.say(f"Capturing batches: {100 * done // total}% {done}/{total}")


@live()
def asyncio_works(stage: Stage) -> None:
    """An event loop ticks and waits for a job of its thread pool, which reads and hashes for long."""

    async def tick() -> None:
        for number in itertools.count():
            stage.say(f"tick {number}")
            await asyncio.sleep(stage.spread(0.5, 2))

    async def run() -> None:
        task = asyncio.create_task(tick())
        await asyncio.to_thread(_load_for_ever, stage)
        task.cancel()

    asyncio.run(run())


@live(ranks=WORLD)
def rank_works(stage: Stage) -> None:
    """Three of four ranks stand in a collective for minutes; the fourth is on its way there and works."""
    import torch
    import torch.distributed as dist

    odd = stage.odd(WORLD)

    def body(rank: int, port: int) -> None:
        faults.join(rank, WORLD, port)
        if rank == odd and stage.seed % 4 < 2:
            faults.slow_compile(stage, 600)
        elif rank == odd:
            faults.long_prefill(stage, 600)
        dist.all_reduce(torch.ones(64, 64))
        threading.Event().wait()

    fork_ranks(stage, body)
    os.wait()


@live(ranks=WORLD)
def rank_late(stage: Stage) -> None:
    """Three of four ranks wait at the rendezvous; the launcher still reads what the fourth needs before it starts it."""
    fork_ranks(stage, lambda rank, port: faults.join(rank, WORLD, port), without={stage.odd(WORLD)})
    _load_for_ever(stage)


@live(silent=True)
def old_locks_about(stage: Stage) -> None:
    """Lock files of the dead lie in its caches, as they always do; it waits for none of them, but polls for jobs, several times a second."""
    hub = Path.home() / ".cache" / "huggingface" / "hub" / ".locks" / "models--org--model"
    for lock in (faults.extensions() / "fused_moe" / "lock", *(hub / f"{number:040x}.lock" for number in range(5))):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        os.utime(lock, (time.time() - 86400, time.time() - 86400))
    jobs, pause = stage.folder / "jobs", stage.spread(0.05, 0.4)
    jobs.mkdir()
    stage.say("worker started")
    while True:
        list(jobs.iterdir())
        time.sleep(pause)
