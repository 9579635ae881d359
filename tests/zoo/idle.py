"""Live twins that do nothing because there is nothing to do: servers between requests, workers between jobs. Undecided is right here."""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time

from runbook.lab import faults
from runbook.lab.faults import Stage, chatter, throttled_read
from tests.zoo.loads import MIB, shard
from tests.zoo.ranks import WORLD, fork_ranks
from tests.zoo.scenario import live
from tests.zoo.servers import serve


@live(serves=True, silent=True, also=("wrong_check",))
def idle_without_health(stage: Stage) -> None:
    """A server between requests that has no health path: it answers 404, and every thread stands."""
    serve(stage, lambda: (404, b"not found"))
    if stage.seed % 4 < 2:
        chatter(stage, 5.0)
    threading.Event().wait()


@live(serves=True, silent=True, ranks=WORLD, also=("wrong_check",))
def idle_ranks(stage: Stage) -> None:
    """Ranks between requests: the first waits for the front's next one, the others for the first, in a broadcast. No health path."""
    import torch
    import torch.distributed as dist

    requests, front = os.pipe()

    def body(rank: int, port: int) -> None:
        os.close(front)
        faults.join(rank, WORLD, port)
        faults.steps(stage, 3, 0.2, rank)
        if rank == 0:
            select.select([requests], [], [])
        dist.broadcast(torch.ones(8), src=0)

    fork_ranks(stage, body)
    serve(stage, lambda: (404, b"not found"))
    threading.Event().wait()


@live(silent=True)
def idle_with_zombie(stage: Stage) -> None:
    """A worker that polls for jobs; a helper of its start failed long ago and was never reaped."""
    subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(1)"])
    jobs, pause = stage.folder / "jobs", stage.spread(0.05, 0.5)
    jobs.mkdir()
    stage.say("worker started, optional helper not available")
    while True:
        list(jobs.iterdir())
        time.sleep(pause)


@live()
def pool_terminated(stage: Stage) -> None:
    """Workers that prepared the load are terminated by their parent when they are done, and the load goes on without them."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=threading.Event().wait, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    stage.pause(8, 15)
    for worker in workers:
        worker.terminate()
    if stage.seed % 4 < 2:
        for worker in workers:
            worker.join()
    path = shard(stage, 0, 16 * MIB)
    while True:
        throttled_read(path, stage.spread(120, 500) * 1024, stage.rng)
