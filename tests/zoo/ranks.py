"""Four ranks over gloo: one that is missing, stopped, elsewhere or in another collective; and a group that is merely slow."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection

from runbook.lab import faults
from runbook.lab.faults import Stage
from tests.zoo.scenario import crashed, hung, live

WORLD = 4


def fork_ranks(stage: Stage, body: Callable[[int, int], object], without: Collection[int] = ()) -> None:
    """Import torch once, then fork the ranks, titled as engines title theirs. body(rank, port of the rendezvous)."""
    import setproctitle
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    title = stage.pick("sglang::scheduler_TP{}", "VLLM::Worker_TP{}", "trainer_TP{}")
    for rank in range(WORLD):
        if rank not in without and os.fork() == 0:
            setproctitle.setproctitle(title.format(rank))
            torch.set_num_threads(1)
            body(rank, port)
            os._exit(0)


def _group(stage: Stage, then: Callable[[int], object]) -> None:
    """All ranks join and make some steps, then do what is asked."""
    count, pause = stage.rng.randrange(2, 8), stage.spread(0.1, 0.6)

    def body(rank: int, port: int) -> None:
        faults.join(rank, WORLD, port)
        faults.steps(stage, count, pause, rank)
        then(rank)

    fork_ranks(stage, body)
    for _ in range(WORLD):
        os.wait()


@hung("rank_missing", "unsatisfiable", "blocked_peer", pace="decisive", ranks=WORLD)
def rank_missing(stage: Stage) -> None:
    """Three of four ranks wait at the rendezvous for one that was never started."""
    odd = stage.odd(WORLD)
    stage.blame(rank=odd)
    fork_ranks(stage, lambda rank, port: faults.rank_missing(stage, rank, WORLD, port), without={odd})
    os.wait()


@hung("stopped", pace="decisive", ranks=WORLD)
def rank_stopped(stage: Stage) -> None:
    """One of four ranks is stopped, the others are in a collective."""
    _group(stage, lambda rank: faults.rank_stopped(stage, rank, WORLD))


@hung("rank_desync", "deadlock", "blocked_peer", ranks=WORLD)
def collective_mismatch(stage: Stage) -> None:
    """One of four ranks calls another collective than the rest."""
    _group(stage, lambda rank: faults.collective_mismatch(stage, rank, WORLD))


@hung("rank_desync", "rank_missing", "deadlock", "blocked_peer", ranks=WORLD)
def rank_in_user_code(stage: Stage) -> None:
    """One of four ranks waits in user code for what never comes, the others are in a collective."""
    import torch
    import torch.distributed as dist

    odd = stage.odd(WORLD)

    def then(rank: int) -> None:
        stage.stuck()
        if rank == odd:
            stage.blame(os.getpid(), rank)
            next_batch()
        dist.all_reduce(torch.ones(64, 64))
        threading.Event().wait()

    def next_batch() -> None:
        threading.Event().wait()

    _group(stage, then)


@live(ranks=WORLD)
def slow_gloo(stage: Stage) -> None:
    """Four ranks in step; one computes for seconds before each all_reduce, the others wait there."""
    import torch
    import torch.distributed as dist

    odd, seconds = stage.odd(WORLD), stage.spread(1.5, 6)

    def body(rank: int, port: int) -> None:
        faults.join(rank, WORLD, port)
        value = torch.randn(128, 128)
        while True:
            if rank == odd:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    value = torch.tanh(value @ value)
                    time.sleep(0.02)
            dist.all_reduce(value)

    fork_ranks(stage, body)
    os.wait()


@crashed("rank_died", "exception", "signal", ranks=WORLD)
def rank_dies(stage: Stage) -> None:
    """One of four ranks is killed, the others wait for it and nobody looks."""
    import torch
    import torch.distributed as dist

    odd = stage.odd(WORLD)

    def then(rank: int) -> None:
        if rank == odd:
            stage.blame(os.getpid(), rank)
            stage.stuck()
            os.kill(os.getpid(), 9)
        while True:
            try:
                dist.all_reduce(torch.ones(64, 64))
            except RuntimeError:
                threading.Event().wait()

    count = stage.rng.randrange(2, 8)

    def body(rank: int, port: int) -> None:
        faults.join(rank, WORLD, port)
        faults.steps(stage, count, 0.3, rank)
        then(rank)

    fork_ranks(stage, body)
    threading.Event().wait()
